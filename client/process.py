"""Watching processes that are not our children."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import psutil

POLL_S = 0.02
"""Between two looks at a process that is about to end."""


def runs(process: psutil.Process) -> bool:
    """False for a zombie too: nobody may ever collect it, but it does nothing any more."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until_gone(processes: Iterable[psutil.Process], timeout_s: float) -> None:
    """Raises TimeoutError if one still runs after `timeout_s`."""
    async with asyncio.timeout(timeout_s):
        for process in processes:
            while runs(process):  # noqa: ASYNC110 (the end of a stranger sets no Event)
                await asyncio.sleep(POLL_S)
