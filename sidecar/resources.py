"""What sessions and the daemon use, over whole process trees."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil

from sidecar.cpu_mark import CpuMark
from sidecar.protocol.ring import RingError, RingReader

T = TypeVar("T")
_GONE = (psutil.NoSuchProcess, psutil.ZombieProcess)


async def of_tree(root: int | None, mark: CpuMark) -> dict[str, Any] | None:
    """`resources` of SessionInfo for `root` and all below it; None without a process."""
    if root is None:
        return None
    return await asyncio.to_thread(_sum_tree, root, mark)


def _sum_tree(root: int, mark: CpuMark) -> dict[str, Any] | None:
    try:
        top = psutil.Process(root)
        return _sum([top, *top.children(recursive=True)], mark)
    except _GONE:
        return None


async def of_process(pid: int, mark: CpuMark) -> dict[str, Any]:
    """The same for one process alone."""
    return await asyncio.to_thread(_sum, [psutil.Process(pid)], mark)


def _sum(processes: list[psutil.Process], mark: CpuMark) -> dict[str, Any]:
    """A figure the kernel keeps from us is null: PSS and descriptors of a process that hides its
    memory, unless we are root."""
    rows = [row for row in map(_one, processes) if row is not None]
    total: dict[str, Any] = {"processes": len(rows)}
    for key in ("rss_bytes", "pss_bytes", "cpu_s", "fds", "threads"):
        values = [row[key] for row in rows]
        total[key] = None if None in values else round(sum(values), 3)
    age_s = time.time() - processes[0].create_time()
    return {**total, "cpu_percent": mark.percent_since(total["cpu_s"], age_s)}


def _one(process: psutil.Process) -> dict[str, Any] | None:
    try:
        with process.oneshot():
            times = process.cpu_times()
            return {
                "rss_bytes": process.memory_info().rss,
                "pss_bytes": _unless_hidden(lambda: process.memory_full_info().pss),
                "cpu_s": times.user + times.system,
                "fds": _unless_hidden(process.num_fds),
                "threads": process.num_threads(),
            }
    except _GONE:
        return None


def _unless_hidden(measure: Callable[[], T]) -> T | None:
    try:
        return measure()
    except (psutil.AccessDenied, AttributeError):  # macOS has no PSS at all
        return None


def of_ring(path: Path) -> dict[str, Any] | None:
    """`ring` of SessionInfo; None without a readable ring file."""
    try:
        with RingReader.open(path) as reader:
            return reader.stats()._asdict()
    except (OSError, RingError):
        return None
