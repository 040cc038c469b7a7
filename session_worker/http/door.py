"""The endpoint's open door: serving the shared listening socket, and closing it for sleep."""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

from session_worker.core import SessionCore
from session_worker.http.keys import CORE
from sidecar.protocol import bounds


class Door:
    """Serves until `close`. The listening socket itself belongs to the shim and stays open: a
    client that comes while nobody serves waits in its queue."""

    def __init__(self, core: SessionCore, runner: web.AppRunner, listener: socket.socket) -> None:
        self._core = core
        self._runner = runner
        self._listener = listener
        self._site: web.SockSite | None = None

    @classmethod
    async def open(cls, core: SessionCore, app: web.Application, listener: socket.socket) -> Door:
        app[CORE] = core
        runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            keepalive_timeout=bounds.HTTP_KEEPALIVE_S,
            shutdown_timeout=bounds.LAST_ANSWERS_S,
        )
        await runner.setup()
        door = cls(core, runner, listener)
        await door._serve()
        return door

    async def _serve(self) -> None:
        own = self._listener.dup()
        own.setblocking(False)
        self._site = web.SockSite(self._runner, own)
        await self._site.start()

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
        return self._core.busy or self._core.background > 0 or bool(self._connections())

    def _connections(self) -> list[web.RequestHandler]:
        server = self._runner.server
        assert server is not None, "set up in `open`"
        return server.connections

    async def _shut(self) -> bool:
        """Stop accepting. False, and open again, if a client slipped in meanwhile."""
        assert self._site is not None, "serving since `open`"
        await self._site.stop()
        if self._in_use():
            await self._serve()
            return False
        return True

    async def close(self) -> None:
        await self._runner.cleanup()
