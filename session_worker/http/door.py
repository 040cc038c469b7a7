"""The endpoint's open door: serving the shared listening sockets, and closing it for sleep."""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

from session_worker.core import SessionCore
from session_worker.http.connection import Listening
from session_worker.http.keys import CORE
from sidecar.protocol import bounds


class Door:
    """Serves until `close`. The listening sockets themselves belong to the shim and stay open: a
    client that comes while nobody serves waits in their queues."""

    def __init__(
        self, core: SessionCore, runner: web.AppRunner, listenings: list[Listening]
    ) -> None:
        self._core = core
        self._runner = runner
        self._listenings = listenings

    @classmethod
    async def open(
        cls, core: SessionCore, app: web.Application, listeners: list[socket.socket]
    ) -> Door:
        app[CORE] = core
        runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=bounds.LAST_ANSWERS_S)
        await runner.setup()
        server = runner.server
        assert server is not None, "just set up"
        door = cls(core, runner, [Listening(server, listener) for listener in listeners])
        await door._serve()
        return door

    async def _serve(self) -> None:
        for listening in self._listenings:
            await listening.start()

    async def wait_idle(self, idle_timeout_s: float) -> None:
        """Returns with the door shut, once nothing has run and nobody was connected for
        `idle_timeout_s`; never if that is 0."""
        tick_s = min(bounds.IDLE_TICK_S, idle_timeout_s) or bounds.IDLE_TICK_S
        idle_s = 0.0
        while True:
            await asyncio.sleep(tick_s)
            idle_s = 0.0 if self._in_use() else idle_s + tick_s
            if 0 < idle_timeout_s <= idle_s and await self._shut():
                return

    def _in_use(self) -> bool:
        connected = any(listening.in_use for listening in self._listenings)
        return self._core.busy or self._core.background > 0 or connected

    async def _shut(self) -> bool:
        """Stop accepting. False, and open again, if a client slipped in meanwhile."""
        self._stop()
        await asyncio.sleep(0)  # who has just been accepted shows in the loop's next turn
        if self._in_use():
            await self._serve()
            return False
        return True

    def _stop(self) -> None:
        for listening in self._listenings:
            listening.stop()

    async def close(self) -> None:
        self._stop()
        await self._runner.cleanup()
