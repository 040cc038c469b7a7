"""Control groups for sessions, where somebody has delegated a subtree to this daemon.

systemd says so by the extended attribute `user.delegate` on the group of a unit with
`Delegate=yes` (since 251). Write permission says nothing: a desktop's terminal runs in a group
that its user may write to, and that belongs to somebody else all the same.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from sidecar.protocol import cgroup

log = logging.getLogger(__name__)

OWN = "daemon"
"""Our own group below the delegated one, which itself may hold no process once it has controllers
switched on ("no internal processes"). Also the unit's DelegateSubgroup."""
CONTROLLERS = ("memory", "pids")


def claim() -> str | None:
    """The delegated group, with ourselves moved into a leaf of it; None without delegation.

    Call it before the first child is started: children stay where they were born.
    """
    group = _delegated()
    if group is None:
        return None
    own = group / OWN
    try:
        own.mkdir(exist_ok=True)
        cgroup.enter(str(own))
    except OSError as error:
        log.warning("%s is delegated to us but cannot be used: %r", group, error)
        return None
    for controller in CONTROLLERS:
        with suppress(OSError):  # not there, or a process of somebody else is in the group
            (group / "cgroup.subtree_control").write_text(f"+{controller}")
    log.info("each session gets a control group below %s", group)
    return str(group)


def _delegated() -> Path | None:
    """Ours, or the one above it when a manager has put us into the leaf already."""
    own = _own_group()
    if own is None:
        return None
    for group in (own, own.parent) if own.name == OWN else (own,):
        with suppress(OSError, AttributeError):  # no such attribute; a system without them
            if os.getxattr(group, "user.delegate") == b"1" and (group / "cgroup.kill").exists():
                return group
    return None


def _own_group() -> Path | None:
    """The directory of the v2 group this process is in."""
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return None
    path = next((line.removeprefix("0::") for line in groups if line.startswith("0::")), None)
    mount = next((line.split()[1] for line in mounts if line.split()[2] == "cgroup2"), None)
    return Path(mount + path) if path and mount else None


def path_of(base: str, session_id: str) -> str:
    return f"{base}/s-{session_id}"


def holds(group: str | None, limit: str) -> bool:
    """Whether the kernel keeps this limit of `session.create` for the group."""
    file = {"memory_bytes": "memory.max", "processes": "pids.max"}.get(limit)
    return group is not None and file is not None and Path(group, file).exists()
