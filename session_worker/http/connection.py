"""Connections to the endpoint: how many there may be, and how long they may keep us waiting.

`door.py` serves each listening socket with one `Listening`. A head that does not come, or a client
that does not take its answer, ends its own connection and nothing else; bodies are bounded in
`intake.py`, streams in `sse.py`.
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import cast

from aiohttp import web

from session_worker.http.errors import error_response
from sidecar.protocol import bounds

CONNECTIONS = 128
"""Of one listening socket: far above what people and programs open, and what floods TCP leaves the
Unix socket alone."""
REFUSALS = 32
"""Further connections that are told so at once; beyond these they are cut off without a word."""
REFUSAL_S = 1.0
"""A refused client sends its request within this, or misses the answer."""
LINE_BYTES = 8 * bounds.KIB
"""First line, and each header: a token, a cursor, a path."""
HEADERS = 64
"""Browsers send about 20. With `LINE_BYTES` this bounds what an unfinished head can hold."""
LINGER_S = 5.0
"""After a refusal the rest of a body is thrown away for so long: a close with bytes unread would
destroy the answer on its way."""
WRITE_STALL_S = 30.0
"""Between two looks at a client that is waited for; one that has taken nothing meanwhile is cut
off, for it would hold its answer in our memory, and us awake."""


class Connection(web.RequestHandler):
    """One connection that is served. Until its next request has a whole head, and be it from its
    start, aiohttp waits `keepalive_timeout`, however many bytes drip in meanwhile."""

    __slots__ = ("_guests", "_next_look", "_wire")

    def __init__(self, server: web.Server, guests: set[asyncio.BaseProtocol]) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # pyright: ignore[reportArgumentType] - its way to say: none
            keepalive_timeout=bounds.HTTP_KEEPALIVE_S,
            lingering_time=LINGER_S,
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
            max_headers=HEADERS,
            auto_decompress=False,  # nobody compresses a prompt, but a bomb
        )
        self._guests = guests

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._wire = cast(asyncio.Transport, transport)  # ours to the end, also while it closes
        self._look_for_stall(None)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._guests.discard(self)
        self._next_look.cancel()
        super().connection_lost(exc)

    def _look_for_stall(self, before: int | None) -> None:
        """Cut off a client that has taken nothing since the last look, at which `before` bytes
        waited for it; None: it was not waited for."""
        waits = self.writing_paused or self._wire.is_closing()
        unsent = self._wire.get_write_buffer_size() if waits else None
        if before is not None and unsent is not None and unsent >= before:
            self._wire.abort()
            return
        loop = asyncio.get_running_loop()
        self._next_look = loop.call_later(WRITE_STALL_S, self._look_for_stall, unsent)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What cannot be parsed is answered in our shape and not logged: aiohttp would quote it,
        and a token could be in it."""
        if status != 400:
            return super().handle_error(request, status, exc, message)
        response = error_response(400, "invalid_input", "this is no HTTP request, or too large")
        response.force_close()
        return response


class _Refused(asyncio.Protocol):
    """One connection too many."""

    def __init__(self, guests: set[asyncio.BaseProtocol]) -> None:
        self._guests = guests

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        loop = asyncio.get_running_loop()
        self._leave = loop.call_later(REFUSAL_S, self._transport.abort)
        if len(self._guests) > CONNECTIONS + REFUSALS:
            self._transport.abort()
        else:
            self._transport.write(_TOO_MANY)

    def data_received(self, data: bytes) -> None:
        self._transport.close()  # not before: see LINGER_S

    def connection_lost(self, exc: BaseException | None) -> None:
        self._leave.cancel()
        self._guests.discard(self)


def _too_many() -> bytes:
    body = json.dumps({"code": "overloaded", "message": "too many connections; close some"})
    head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


_TOO_MANY = _too_many()


class Listening:
    """One listening socket, served from `start` to `stop`; it stays open, for it is the shim's."""

    def __init__(self, server: web.Server, listener: socket.socket) -> None:
        self._server = server
        self._listener = listener
        self._guests: set[asyncio.BaseProtocol] = set()
        self._accepting: asyncio.Server | None = None

    @property
    def in_use(self) -> bool:
        return bool(self._guests)

    async def start(self) -> None:
        own = self._listener.dup()
        own.setblocking(False)
        self._accepting = await asyncio.get_running_loop().create_server(
            self._welcome, sock=own, backlog=bounds.ENDPOINT_BACKLOG
        )

    def stop(self) -> None:
        if self._accepting is not None:
            self._accepting.close()
            self._accepting = None

    def _welcome(self) -> asyncio.BaseProtocol:
        full = len(self._guests) >= CONNECTIONS
        guest = _Refused(self._guests) if full else Connection(self._server, self._guests)
        self._guests.add(guest)
        return guest
