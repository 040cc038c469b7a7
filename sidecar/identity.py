"""Which process a pid meant: boot, pid and start time, proven behind a pidfd.

A pid alone is reused; a wall-clock creation time moves with the clock (supervision.md §b).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sidecar.protocol import bounds
from sidecar.protocol.process_tree import is_zombie, start_ticks


@dataclass(frozen=True)
class Identity:
    """`started` counts clock ticks since boot on Linux, microseconds of the epoch elsewhere."""

    boot: str
    pid: int
    started: int


def identify(pid: int) -> Identity:
    """Raises ProcessLookupError if there is no such process."""
    return Identity(_boot(), pid, _started(pid))


def is_alive(identity: Identity) -> bool:
    """Whether that very process runs; a zombie does not."""
    try:
        return identity == identify(identity.pid) and not _is_zombie(identity.pid)
    except ProcessLookupError:
        return False


def kill(identity: Identity) -> None:
    """SIGKILL that very process, if it runs; through a pidfd where there is one, so that nobody
    who got its pid meanwhile is hit."""
    with contextlib.suppress(ProcessLookupError):
        if not hasattr(os, "pidfd_open"):
            if is_alive(identity):
                os.kill(identity.pid, signal.SIGKILL)
            return
        fd = os.pidfd_open(identity.pid)
        try:
            if is_alive(identity):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)


async def wait_ended(identity: Identity) -> None:
    """Returns once that very process has ended; the caller bounds the wait.

    A pidfd also tells of processes that are not our children. The descriptor comes first and the
    comparison second, so that no reuse of the pid can slip between.
    """
    if not hasattr(os, "pidfd_open"):
        while is_alive(identity):  # noqa: ASYNC110 - this OS gives no event to wait for
            await asyncio.sleep(bounds.PROCESS_POLL_S)
        return
    try:
        fd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    try:
        if is_alive(identity):
            loop.add_reader(fd, ended.set)
            await ended.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)


@cache
def _boot() -> str:
    if sys.platform == "linux":
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    import psutil  # here and below, for it is 9 ms of a daemon's start, and Linux needs none of it

    return str(int(psutil.boot_time()))


def _started(pid: int) -> int:
    if sys.platform == "linux":
        return start_ticks(pid)
    import psutil

    try:
        return int(psutil.Process(pid).create_time() * 1_000_000)
    except psutil.NoSuchProcess:
        raise ProcessLookupError(pid) from None


def _is_zombie(pid: int) -> bool:
    if sys.platform == "linux":
        return is_zombie(pid)
    import psutil

    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        raise ProcessLookupError(pid) from None
