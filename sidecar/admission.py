"""Whether one more session may start: how many are live, and how much memory is left.

Called before a session is created or resumed. Refuses while there still is memory: the kernel's
way of ending the shortage would hit sessions that have done nothing.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError


def verdict(
    live: int, max_sessions: int, available_bytes: int, need_bytes: int
) -> SidecarError | None:
    """The refusal (`limit_reached`), None to admit. Pure."""
    if live >= max_sessions:
        return SidecarError(
            "limit_reached",
            f"{live} sessions are live, of {max_sessions} allowed",
            "destroy one, or raise max_sessions in config.toml",
            limit="max_sessions",
        )
    if available_bytes < need_bytes:
        left, need = (value // bounds.MIB for value in (available_bytes, need_bytes))
        return SidecarError(
            "limit_reached",
            f"{left} MiB of memory are available, a session wants {need} MiB to be so",
            "destroy a session, or end something else that uses memory",
            limit="memory",
        )
    return None


def need_bytes(starting: int) -> int:
    """Memory that must be available for one more session while `starting` others, already
    admitted, have not taken theirs yet."""
    return bounds.ADMISSION_RESERVE_BYTES + bounds.ADMISSION_SESSION_BYTES * (starting + 1)


def available_bytes() -> int:
    """What the machine, and each control group we are in, still has."""
    import psutil  # here and below, for it is 9 ms of a daemon's start

    return min([psutil.virtual_memory().available, *left_in_groups()])


class _Hierarchy(NamedTuple):
    """`reclaimable` is the line of `memory.stat` with the file pages that can be dropped."""

    mount: str
    limit: str
    used: str
    reclaimable: str


_V1 = _Hierarchy("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _Hierarchy(".", "memory.max", "memory.current", "inactive_file")


def left_in_groups(
    groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> list[int]:
    """Of every group with a limit, from ours upwards. A container shows its own as the root."""
    left: list[int] = []
    for line in _text(groups).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            kind = _V1 if controllers else _V2
            top = root / kind.mount
            group = top / path.lstrip("/")
            for place in (group, *group.parents[: len(group.parts) - len(top.parts)]):
                left += _left_in(place, kind)
    return left


def _left_in(group: Path, kind: _Hierarchy) -> list[int]:
    limit = _text(group / kind.limit).strip()
    if not limit.isdecimal() or int(limit) >= _machine_bytes():  # limits nothing
        return []
    used = _text(group / kind.used).strip()
    if not used.isdecimal():
        return []
    stat = dict(line.split() for line in _text(group / "memory.stat").splitlines())
    return [int(limit) - int(used) + int(stat.get(kind.reclaimable, 0))]


@cache
def _machine_bytes() -> int:
    import psutil

    return psutil.virtual_memory().total


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
