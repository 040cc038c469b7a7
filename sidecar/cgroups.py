"""Control groups for sessions, where somebody has delegated a subtree to this daemon.

We claim only a group in whose leaf `daemon` we were born, which is what `DelegateSubgroup=daemon`
of our unit does (systemd 254 and later). Born in the group itself, moving into a leaf and switching
controllers on would work once: the manager could not put the next daemon there (EBUSY, status
219/CGROUP, seen with systemd 252), as a group with controllers may hold no process.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

LEAF = "daemon"
CONTROLLERS = ("memory", "pids")


def claim() -> str | None:
    """The delegated group, with its controllers switched on; None without delegation."""
    own = _own_group()
    if own is None or own.name != LEAF or not _is_delegated(own.parent):
        return None
    for controller in CONTROLLERS:
        with suppress(OSError):  # not there, or somebody else's process is in the group
            (own.parent / "cgroup.subtree_control").write_text(f"+{controller}")
    log.info("each session gets a control group below %s", own.parent)
    return str(own.parent)


def _is_delegated(group: Path) -> bool:
    """Whether we may do with `group` as we like, by its mark, or as a unit of our user's manager,
    which sets no marks. Write permission alone says nothing: a desktop's terminal runs in a group
    of its user's, too."""
    if not (group / "cgroup.kill").exists():  # Linux 5.14
        return False
    with suppress(OSError, AttributeError):  # no such attribute; a system without them
        if os.getxattr(group, "user.delegate") == b"1":
            return True
    return group.suffix == ".service" and group.stat().st_uid == os.geteuid() != 0


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
