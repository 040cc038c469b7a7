"""Ending every descendant of this process, with the kernel's word for it.

Used by the shim, which is a child subreaper: every orphan below it becomes its child, so
`waitpid` answering ECHILD proves that nothing is left (supervision.md §b). Work handed to
another daemon (docker, systemd-run, an older tmux server) is not a descendant.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable

import psutil

from sidecar.protocol import bounds, cgroup
from sidecar.protocol.process_tree import Reaped, children, freeze_and_kill, reap, trees


def kill_all(on_reaped: Reaped, group: str | None) -> bool:
    """Kill until no descendant lives, and nothing in the control group `group`. False if some
    outlived `KILL_TREE_S`."""
    deadline = time.monotonic() + bounds.KILL_TREE_S
    while reap(on_reaped) or (group is not None and cgroup.is_populated(group)):
        if group is not None:
            cgroup.kill(group)
        freeze_and_kill(_descendants)
        if time.monotonic() > deadline:
            return False
        time.sleep(bounds.KILL_TREE_PAUSE_S)
    return True


def _descendants() -> Iterable[int]:
    if sys.platform != "linux":
        return [child.pid for child in psutil.Process().children(recursive=True)]
    return trees(children(os.getpid()))
