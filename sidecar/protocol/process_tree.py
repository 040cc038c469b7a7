"""Finding and ending processes below a process: what the shim and the daemon share.

Reads /proc, so it finds nothing on another system. Never collects anything but its caller's own
children.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from sidecar.protocol import bounds

SESSION_COOKIE = "SIDECAR_SESSION"
"""In the environment of all that a session starts, with its id: by this what is left of it is found
and ended, should its shim die."""

Reaped = Callable[[int, int], None]
"""Called with (pid, exit code; negative for a signal) of every child collected."""


def start_ticks(pid: int) -> int:
    """When `pid` began, in clock ticks since boot. Raises ProcessLookupError."""
    return int(_stat(pid)[19])


def is_zombie(pid: int) -> bool:
    """Whether it has ended and only waits for its parent. Raises ProcessLookupError."""
    return _stat(pid)[0] in "ZX"


def _stat(pid: int) -> list[str]:
    """From field 3 on; the name before it may hold spaces and parentheses."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None
    return stat.rpartition(")")[2].split()


def children(pid: int) -> list[int]:
    """Newest first: the youngest may be the first to go."""
    out: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                out += map(int, (task / "children").read_text().split())
    return out[::-1]


def trees(roots: Iterable[int], exempt: Iterable[int] = ()) -> Iterator[int]:
    """`roots` and everything below them, without `exempt` and what is below those.

    Parents come before their children are looked for, so whoever stops what it gets misses no
    child. Not by psutil's map of parents: that is too slow to race a fork loop.
    """
    seen = set(exempt)
    for root in roots:
        todo = [root]
        while todo:
            pid = todo.pop()
            if pid not in seen:
                seen.add(pid)
                yield pid
                todo += children(pid)


def reap(on_reaped: Reaped) -> bool:
    """Collect every dead child. False when there is no child at all: the tree is gone."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        on_reaped(pid, os.waitstatus_to_exitcode(status))


def freeze_and_kill(find: Callable[[], Iterable[int]]) -> bool:
    """One round of stopping and killing what `find` finds; False if it found nothing.

    Each is stopped the moment it is found: a process that forks and exits every 2 ms is gone by
    the end of the scan. Freezing first is what ends a fork loop: 40 setsid children that are
    killed one by one are replaced faster than they die. It is also what makes a pid safe to kill:
    a stopped parent collects no child, so no pid below it is free to become somebody else's.
    """
    stopped: set[int] = set()
    for _ in range(bounds.FREEZE_ROUNDS):
        new = False
        for pid in find():
            if pid not in stopped:
                _signal(pid, signal.SIGSTOP)
                stopped.add(pid)
                new = True
        if not new:
            break
    if stopped:
        for pid in list(find()):
            _signal(pid, signal.SIGKILL)
    return bool(stopped)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
