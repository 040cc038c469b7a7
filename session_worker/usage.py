"""What a process tree uses: memory, processes, CPU time. Cheap enough for once a second.

Called by the shim's watch (docs/limits.md). Reads only files that any user may read, since a
worker hides its memory from us; PSS, which may be hidden and costs a walk over all pages, only
when it matters.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import psutil

from sidecar.protocol import bounds

_TICKS_S = 1 / os.sysconf("SC_CLK_TCK")
_FORKED_NOT_EXECUTED = 0x40
"""PF_FORKNOEXEC of the kernel's `sched.h`."""
_MEMORY = re.compile(rb"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB", re.M)
_FAIR_SHARE = re.compile(rb"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB", re.M)


class ProcessUsage(NamedTuple):
    """`ended_s` is the CPU time of children it has waited for, and of theirs. `memory_bytes` is
    all that is no file, shared or not. `forked`: it has executed nothing since it was made."""

    parent: int
    cpu_s: float
    ended_s: float
    memory_bytes: int
    forked: bool
    age_s: float


class TreeUsage(NamedTuple):
    memory_bytes: int
    processes: int
    cpu_s: float


Tree = dict[int, ProcessUsage]
"""By pid; every process comes after its parent."""


def measure(root: int) -> Tree:
    """`root` and all below it. A process that ends meanwhile may be missing.

    Parents are read before their children: who is alive when read was in no `ended_s` read
    before, so that nothing is counted twice.
    """
    tree: Tree = {}
    todo = [root]
    while todo:
        pid = todo.pop()
        if pid not in tree and (row := _read(pid)):
            tree[pid] = row
            todo += children(pid)
    return tree


def total(tree: Tree, root: int, worker: int | None = None, *, fair: bool = False) -> TreeUsage:
    """All below `root`, which itself does not count.

    What processes share counts in each of them; with `fair`, which looks again, it is divided
    among them where we may see it. A forked `worker` counts with what it has beyond its shim's
    image, and any child that has just been forked with what it has beyond its parent.
    """
    below = {pid: row for pid, row in tree.items() if pid != root}
    cpu_s = sum(row.cpu_s + row.ended_s for row in below.values())
    return TreeUsage(
        sum(_memory(pid, tree, pid == worker, fair) for pid in below),
        len(below),
        cpu_s + (tree[root].ended_s if root in tree else 0.0),
    )


def _memory(pid: int, tree: Tree, is_worker: bool, fair: bool) -> int:
    row = tree[pid]
    # a child of vfork *is* its parent's memory until it executes, which PSS does not show
    if row.forked and (is_worker or row.age_s < bounds.LIMIT_EXEC_S):
        parent = tree.get(row.parent)
        return max(0, row.memory_bytes - (parent.memory_bytes if parent else 0))
    return _fair_share(pid, row.memory_bytes) if fair else row.memory_bytes


if sys.platform == "linux":

    def children(pid: int) -> Iterator[int]:
        """Of all its threads."""
        try:
            for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 -- of strings
                yield from map(int, _bytes(f"/proc/{pid}/task/{task}/children").split())
        except OSError:
            return

    def _read(pid: int) -> ProcessUsage | None:
        try:
            stat = _bytes(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
            memory = sum(map(int, _MEMORY.findall(_bytes(f"/proc/{pid}/status"))))
        except OSError:
            return None
        user, system, ended_user, ended_system = map(int, stat[11:15])
        return ProcessUsage(
            parent=int(stat[1]),
            cpu_s=(user + system) * _TICKS_S,
            ended_s=(ended_user + ended_system) * _TICKS_S,
            memory_bytes=memory * bounds.KIB,
            forked=bool(int(stat[6]) & _FORKED_NOT_EXECUTED),
            age_s=time.clock_gettime(time.CLOCK_BOOTTIME) - int(stat[19]) * _TICKS_S,
        )

    def _fair_share(pid: int, otherwise: int) -> int:
        try:
            found = _FAIR_SHARE.findall(_bytes(f"/proc/{pid}/smaps_rollup"))
        except OSError:
            return otherwise
        return sum(map(int, found)) * bounds.KIB if found else otherwise

    def _bytes(path: str) -> bytes:
        """Less than half the cost of `Path.read_bytes`, which is what a look consists of."""
        fd = os.open(path, os.O_RDONLY)
        try:
            return b"".join(iter(lambda: os.read(fd, 64 * bounds.KIB), b""))
        finally:
            os.close(fd)

else:

    def children(pid: int) -> Iterator[int]:
        try:
            yield from (child.pid for child in psutil.Process(pid).children())
        except psutil.Error:
            return

    def _read(pid: int) -> ProcessUsage | None:
        try:
            process = psutil.Process(pid)
            times = process.cpu_times()
            return ProcessUsage(
                parent=process.ppid(),
                cpu_s=times.user + times.system,
                ended_s=times.children_user + times.children_system,
                memory_bytes=process.memory_info().rss,
                forked=False,
                age_s=time.time() - process.create_time(),
            )
        except psutil.Error:
            return None

    def _fair_share(pid: int, otherwise: int) -> int:
        return otherwise
