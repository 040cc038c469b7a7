"""Ending what a dead shim could not: the daemon is the second subreaper above every session.

Called by the supervisor on its loop, a short round at a time, so that between finding and killing
nothing of ours is started or collected. Orphans of shims that this daemon inherited go to PID 1;
those are known by their session's control group, or else by the cookie `SIDECAR_SESSION` in the
environment they were started with: without a group, one that has emptied its environment is found
only while its parent lives.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable
from itertools import chain

from sidecar.protocol import bounds, cgroup, process_tree
from sidecar.protocol.process_tree import SESSION_COOKIE
from sidecar.record import Record


async def end(records: Collection[Record], ours: Callable[[], set[int]]) -> bool:
    """Kill the orphans of dead shims, and whatever was started by the sessions of `records`,
    none of which may be live. False if something outlived `KILL_TREE_S`.

    `ours` names the children of this process that are no orphans.
    """
    session_ids = {record.session_id for record in records}
    groups = [record.cgroup for record in records if record.cgroup is not None]
    deadline = time.monotonic() + bounds.KILL_TREE_S
    clean = 0
    while clean < bounds.CLEAN_SCANS:
        if time.monotonic() > deadline:
            return False
        found = [group for group in groups if cgroup.is_populated(group)]
        for group in found:
            cgroup.kill(group)
        if process_tree.freeze_and_kill(lambda: _left_behind(session_ids, ours())) or found:
            clean = 0
        else:
            clean += 1
        await asyncio.sleep(bounds.KILL_TREE_PAUSE_S)
    for group in groups:
        cgroup.remove(group)
    return True


def _left_behind(session_ids: Collection[str], ours: set[int]) -> Iterable[int]:
    me = os.getpid()
    newest_first = sorted(_pids(), reverse=True)
    marked = (pid for pid in newest_first if _session_of(pid) in session_ids)
    return process_tree.trees(chain(process_tree.children(me), marked), exempt={me, *ours})


def _pids() -> list[int]:
    if sys.platform == "linux":
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208
    import psutil  # here and below, for it is 9 ms of a daemon's start

    return psutil.pids()


def _session_of(pid: int) -> str | None:
    """Whose tool started `pid`; None for nobody's, a dead process's or a stranger's."""
    if sys.platform != "linux":
        import psutil

        try:
            return psutil.Process(pid).environ().get(SESSION_COOKIE)
        except psutil.Error:
            return None
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - a Path doubles the scan
            _, found, rest = (b"\0" + file.read()).partition(f"\0{SESSION_COOKIE}=".encode())
    except OSError:
        return None
    return rest.partition(b"\0")[0].decode(errors="replace") if found else None
