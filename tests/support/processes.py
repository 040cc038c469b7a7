"""Which processes belong to a Sidecar home, and waiting for what the kernel decides."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

T = TypeVar("T")
WAIT_S = 30.0
"""For anything that comes true in milliseconds on an idle machine."""


def eventually(condition: Callable[[], T], what: str) -> T:
    """The first truthy answer of `condition`; fails the test after `WAIT_S`."""
    until = time.monotonic() + WAIT_S
    while True:
        if answer := condition():
            return answer
        if time.monotonic() > until:
            pytest.fail(f"not within {WAIT_S} s: {what}")
        time.sleep(0.01)


SPARE = "sidecar-spare"
"""Name of the shim and the worker that wait with the zygote for a session."""


def of_home(home: Path) -> list[psutil.Process]:
    """Live processes of that home: daemon, zygote, shims, workers, and tools of its sessions.

    A dead one that PID 1 has not collected yet does not count, nor do those that wait for a
    session; `all_of_home` has them, too.
    """
    return [process for process in all_of_home(home) if _name(process) not in ("", SPARE)]


def all_of_home(home: Path) -> list[psutil.Process]:
    sessions = home / "state" / "sessions"
    ids = {path.name for path in sessions.iterdir()} if sessions.exists() else set()
    return [process for process in psutil.process_iter() if _belongs(process, home, ids)]


def _name(process: psutil.Process) -> str:
    """Empty for one that has just ended."""
    try:
        return process.name()
    except psutil.Error:
        return ""


def _belongs(process: psutil.Process, home: Path, session_ids: set[str]) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        environ = process.environ()
    except psutil.Error:
        return False
    return environ.get("SIDECAR_HOME") == str(home) or environ.get("SIDECAR_SESSION") in session_ids


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
