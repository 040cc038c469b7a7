"""The four `prctl` settings of the process chain. Each does nothing where the OS has none."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int | bytes) -> None:
    if sys.platform != "linux":
        return
    argument = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)
    if _libc.prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def become_subreaper() -> None:
    """Orphaned descendants become our children, so that `waitpid` can prove them gone."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """SIGKILL for us when `parent` (a pid) ends; at once if it already has."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def hide_memory() -> None:
    """No core dump and no `/proc/PID/{environ,mem,fd}` for other processes of this user."""
    _prctl(_PR_SET_DUMPABLE, 0)


def set_name(name: str) -> None:
    """What `ps` shows; at most 15 bytes."""
    _prctl(_PR_SET_NAME, name.encode()[:15])
