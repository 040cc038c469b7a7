"""Processes that turn descriptors into a session's shim, and the choice between them.

A zygote does it by fork, many times; a spare by exec, once. Both speak one protocol
(`session_worker/zygote.py`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
from typing import Any

from sidecar import environment
from sidecar.identity import identify, wait_ended
from sidecar.protocol import bounds, process_tree
from sidecar.protocol.errors import SidecarError

log = logging.getLogger(__name__)

ZYGOTE = "session_worker.zygote"
SPARE = "session_worker.spare"


class ForkRefused(Exception):
    """This process will not or cannot make a shim; another may."""


class Forker:
    """One zygote or spare. It ends when the daemon closes its socket or dies."""

    def __init__(self, module: str) -> None:
        self._requests, theirs = socket.socketpair()
        self._requests.setblocking(False)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment.of_our_processes(os.environ),
                cwd="/",
                start_new_session=True,
            )
        self._identity = identify(self.process.pid)
        self._unread = b""

    async def hello(self) -> dict[str, Any]:
        """Its first word, once it has imported everything. Raises `ForkRefused`."""
        return await self._answer(bounds.ZYGOTE_READY_S)

    async def fork(self, fds: list[int]) -> int:
        """The pid of a new shim that holds `fds`. Raises `ForkRefused`.

        One that does not answer is killed: its late answer would pass for that to the next request.
        """
        try:
            socket.send_fds(self._requests, [b"f"], fds)
            answer = await self._answer(bounds.FORK_REPLY_S)
        except (OSError, ForkRefused) as error:
            self.process.kill()
            raise ForkRefused(str(error)) from error
        if "pid" not in answer:
            raise ForkRefused(answer.get("error", "no pid in the answer"))
        return int(answer["pid"])

    async def _answer(self, timeout_s: float) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                while b"\n" not in self._unread:
                    chunk = await loop.sock_recv(self._requests, 4096)
                    if not chunk:
                        raise ForkRefused("it has ended")
                    self._unread += chunk
        except (OSError, TimeoutError) as error:
            raise ForkRefused(repr(error)) from error
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    async def wait_ended(self) -> None:
        await wait_ended(self._identity)

    def dismiss(self) -> None:
        """End it, also in the middle of its imports; the shims it has made go on."""
        self._requests.close()
        self.process.terminate()

    def let_go(self) -> None:
        """A spare has become a shim: from here on it is on its own."""
        self._requests.close()


class Forkers:
    """Makes shims: by fork where that is safe, else by exec from a warm spare."""

    def __init__(self, spawn: str) -> None:
        self._by_fork = spawn == "fork"
        self._zygote: Forker | None = None
        self._zygote_hello: dict[str, Any] | None = None
        self._settled = asyncio.Event()
        self._switched = asyncio.Event()
        self._spare: Forker | None = None
        self._turn = asyncio.Lock()
        self._children: list[subprocess.Popen[bytes]] = []

    def switch(self, spawn: str) -> None:
        """How the next sessions start; the shims there are go on."""
        if self._by_fork != (spawn == "fork"):
            self._by_fork = not self._by_fork
            self._settled.clear()
            self._switched.set()

    async def keep_ready(self) -> None:
        """Keep a zygote, or one warm spare, until cancelled; then let them go."""
        while True:
            async with asyncio.TaskGroup() as kept:
                keeping = kept.create_task(self._keep_ready())
                await self._switched.wait()
                self._switched.clear()
                keeping.cancel()

    async def _keep_ready(self) -> None:
        try:
            if self._by_fork:
                while True:
                    await self._live_with_a_zygote()
                    await asyncio.sleep(bounds.ZYGOTE_RESTART_S)
            self._spare = self._start(SPARE)
            await asyncio.Event().wait()
        finally:
            for forker in (self._zygote, self._spare):
                if forker is not None:
                    forker.dismiss()
            self._spare = None

    async def _live_with_a_zygote(self) -> None:
        zygote = self._zygote = self._start(ZYGOTE)
        try:
            self._zygote_hello = await zygote.hello()
            self._settled.set()
            await zygote.wait_ended()
            log.warning("the zygote has ended; sessions start by exec until it is back")
        except ForkRefused as error:
            log.warning("the zygote does not start: %s", error)
        finally:
            zygote.dismiss()
            self._zygote = self._zygote_hello = None
            self._settled.set()

    async def by_fork(self, fds: list[int]) -> int:
        """The pid of a new shim that holds `fds`. Raises `ForkRefused`; a shim may hold them all
        the same, if the zygote died or hung before it could say so."""
        async with self._turn:
            if self._by_fork:
                async with asyncio.timeout(bounds.ZYGOTE_READY_S):
                    await self._settled.wait()
            if self._zygote is None or self._zygote_hello is None:
                raise ForkRefused("there is no zygote")
            return await self._zygote.fork(fds)

    async def by_exec(self, fds: list[int]) -> int:
        """The same from a spare. Raises `SidecarError` (`start_failed`)."""
        async with self._turn:
            spare = self._spare or self._start(SPARE)
            self._spare = None
            try:
                await spare.hello()
                pid = await spare.fork(fds)
            except ForkRefused as error:
                spare.dismiss()
                raise SidecarError(
                    "start_failed", f"no process could be started: {error}", "see daemon.log"
                ) from error
            spare.let_go()
            if not self._by_fork:
                self._spare = self._start(SPARE)
            return pid

    def _start(self, module: str) -> Forker:
        forker = Forker(module)
        self._children.append(forker.process)
        return forker

    def pids(self) -> set[int]:
        """Zygotes and spares that have not been collected, also one that became a shim."""
        return {child.pid for child in self._children}

    def reap(self) -> None:
        """Collect ended children, also inherited ones: shims of a dead zygote, orphans of a dead
        shim. Called on SIGCHLD."""
        process_tree.reap(lambda _pid, _code: None)
        self._children = [child for child in self._children if child.poll() is None]

    def status(self) -> dict[str, Any]:
        """For `sidecar.status`: `pid` is null while there is no zygote."""
        hello = self._zygote_hello
        return {
            "pid": self._zygote and self._zygote.process.pid,
            "threads": hello and hello["threads"],
            "ready": hello is not None,
        }
