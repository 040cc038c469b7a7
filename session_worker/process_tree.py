"""Ending every descendant of this process, with the kernel's word for it.

Used by the shim, which is a child subreaper: every orphan below it becomes its child, so
`waitpid` answering ECHILD proves that nothing is left (supervision.md §b). Work handed to
another daemon (docker, systemd-run, an older tmux server) is not a descendant.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from sidecar.protocol import bounds

Reaped = Callable[[int, int], None]
"""Called with (pid, exit code; negative for a signal) of every child collected."""


def descendants(root: int) -> set[int]:
    """The pids below `root` now. Scans /proc: psutil's ppid map is too slow to race a fork loop."""
    if sys.platform != "linux":
        return {child.pid for child in psutil.Process(root).children(recursive=True)}
    found: set[int] = set()
    todo = [root]
    while todo:
        for child in _children(todo.pop()):
            if child not in found:
                found.add(child)
                todo.append(child)
    return found


def _children(pid: int) -> list[int]:
    out: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                out += map(int, (task / "children").read_text().split())
    return out


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


def kill_all(on_reaped: Reaped) -> bool:
    """Freeze and kill until no descendant lives. False if some outlived `KILL_TREE_S`.

    Freezing first is what ends a fork loop: 40 setsid children that are killed one by one are
    replaced faster than they die.
    """
    deadline = time.monotonic() + bounds.KILL_TREE_S
    me = os.getpid()
    while reap(on_reaped):
        stopped: set[int] = set()
        for _ in range(bounds.FREEZE_ROUNDS):
            new = descendants(me) - stopped
            if not new:
                break
            _signal(new, signal.SIGSTOP)
            stopped |= new
        _signal(descendants(me), signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(bounds.KILL_TREE_PAUSE_S)
    return True


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)
