"""One session's control group (v2), named by its directory: made by the daemon, entered by the
worker, ended by the shim, or by the daemon where the shim could not.

There is one only where a subtree was delegated to us (`sidecar/cgroups.py`). Whatever happens to
its parents or its environment, a process stays in the group it was born in: of all ways to find
what a session has started, this one cannot be evaded (kernel cgroup-v2.rst; supervision.md §b).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def enter(group: str) -> None:
    """Move this process, all its threads, into `group`. Raises OSError.

    It waits for the kernel, 5 to 13 ms: call it beside other work, before anything is started.
    """
    _write(group, "cgroup.procs", "0")


def kill(group: str) -> None:
    """SIGKILL to everything in `group` and below it; forks under way do not escape."""
    with suppress(OSError):
        _write(group, "cgroup.kill", "1")


def is_populated(group: str) -> bool:
    """Whether a process lives in it or below it; False for a group that is not there."""
    return count(group, "cgroup.events", "populated") > 0


def count(group: str, file: str, key: str) -> int:
    """The number beside `key` in a flat-keyed file of the group; 0 without group, file or key."""
    with suppress(OSError):
        lines = Path(group, file).read_text().splitlines()
        return next((int(line.split()[1]) for line in lines if line.split()[0] == key), 0)
    return 0


def remove(group: str) -> None:
    """Remove an empty group, and the empty ones that a tool has made in it."""
    for directory, _, _ in os.walk(group, topdown=False):
        with suppress(OSError):
            os.rmdir(directory)  # noqa: PTH106 - os.walk speaks in strings


def _write(group: str, file: str, text: str) -> None:
    Path(group, file).write_text(text)
