"""The limits of a session's whole tree: what was asked, and the watch that ends what exceeds it.

The shim holds a `Watch`; the worker calls `apply_rlimits` before it does anything. The rule, and
what is missed, is in docs/limits.md.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from session_worker import usage
from session_worker.usage import TreeUsage
from sidecar.protocol import bounds, cgroup


@dataclass(frozen=True)
class Limits:
    """None is no limit. Memory is what is no file; processes are all below the shim."""

    memory_bytes: int | None = None
    processes: int | None = None
    cpu_s: float | None = None

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Limits:
        return cls(wire.get("memory_bytes"), wire.get("processes"), wire.get("cpu_s"))


def exceeded(used: TreeUsage, limits: Limits) -> str | None:
    """The reason to end the session for, None while all is within the limits. Pure."""
    for reason, value, limit in (
        ("memory_limit", used.memory_bytes, limits.memory_bytes),
        ("process_limit", used.processes, limits.processes),
        ("cpu_limit", used.cpu_s, limits.cpu_s),
    ):
        if limit is not None and value > limit:
            return reason
    return None


class Watch:
    """One shim's look at its tree and, where it has one, at its control group. `due` is when
    (monotonic), None when nothing is limited."""

    def __init__(self, limits: Limits, group: str | None = None) -> None:
        self.due = None if limits == Limits() else time.monotonic() + bounds.LIMIT_WATCH_S
        self._limits = limits
        self._group = group
        self._cpu_s = 0.0

    def make_group(self) -> None:
        """The group, if there is to be one and is none, with what it can hold of the limits.

        Called before each worker: a manager clears away an empty group, as a sleeper's is.
        Raises OSError.
        """
        if self._group is None:
            return
        Path(self._group).mkdir(exist_ok=True)
        for file, value in group_settings(self._limits).items():
            with suppress(OSError):  # a controller that was not delegated: the watch goes on alone
                Path(self._group, file).write_text(str(value))

    def look(self, worker: int | None, *, now: bool = False) -> str | None:
        """Look if it is due, or `now`; the reason to end the session for."""
        if self.due is None or not (now or time.monotonic() >= self.due):
            return None
        self.due = time.monotonic() + bounds.LIMIT_WATCH_S
        me = os.getpid()
        tree = usage.measure(me)
        used = usage.total(tree, me, worker)
        if exceeded(used, self._limits) == "memory_limit":
            used = usage.total(tree, me, worker, fair=True)
        # a process that ignores SIGCHLD takes the time of its children with it
        self._cpu_s = max(self._cpu_s, used.cpu_s)
        refused = self._group and refused_by_kernel(self._group)
        return refused or exceeded(used._replace(cpu_s=self._cpu_s), self._limits)


def group_settings(limits: Limits) -> dict[str, int]:
    """File and value for every limit that a control group can hold. Pure."""
    out: dict[str, int] = {}
    if limits.memory_bytes is not None:
        out |= {"memory.max": limits.memory_bytes, "memory.swap.max": 0}
    if limits.processes is not None:
        out["pids.max"] = limits.processes * bounds.LIMIT_TASKS_FACTOR
    return out


def refused_by_kernel(group: str) -> str | None:
    """The limit at which the kernel has killed, or has refused to fork, in this group's life."""
    if cgroup.count(group, "memory.events", "oom_kill"):
        return "memory_limit"
    if cgroup.count(group, "pids.events", "max"):
        return "process_limit"
    return None


def apply_rlimits(limits: Limits) -> None:
    """In the worker, for itself and all it starts: what holds between two looks.

    Not RLIMIT_NPROC, which counts every process of the user; not RLIMIT_CPU, which would end a
    worker without a name a moment before the watch does.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    if limits.memory_bytes is not None and sys.platform == "linux":
        most = limits.memory_bytes * bounds.LIMIT_DATA_FACTOR
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
