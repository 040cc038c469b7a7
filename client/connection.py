"""One control-plane connection: JSON-RPC 2.0 over the daemon's Unix socket (design §4).

Requests are pipelined and matched by id. Standard library only: the command line pays for
every import here at each start.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from client.errors import ConnectionLost, Unreachable, UsageError
from sidecar.protocol import bounds
from sidecar.protocol.errors import PlaceError, SidecarError
from sidecar.protocol.framing import LineSplitter, LineTooLong, encode

Notification = tuple[str, dict[str, Any]]
"""Method and params."""

_BACKLOG = 512
"""Notifications that may wait to be read; then the socket waits, and the daemon's cursor."""
_READ_BYTES = 64 * bounds.KIB
"""One read of the socket; a longer line simply takes several."""


class Connection:
    """An open connection. Whoever subscribes on it must also read `notifications()`.

    While too many of them wait the socket is read no further, answers included, so a
    subscription deserves a connection of its own.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.lost = False
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._refusal: SidecarError | None = None
        """Why the daemon does not go on, where it says so."""
        self._queue: asyncio.Queue[Notification | None] = asyncio.Queue(_BACKLOG)
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, socket: Path) -> Connection:
        """Connect to `socket`. Raises `Unreachable`, or `PlaceError` for somebody else's socket."""
        try:
            if socket.lstat().st_uid != os.geteuid():
                raise PlaceError(f"{socket} belongs to another user", "choose another SIDECAR_HOME")
            async with asyncio.timeout(bounds.CONNECT_S):
                reader, writer = await asyncio.open_unix_connection(socket)
        except OSError as error:
            raise Unreachable(
                f"no daemon answers at {socket} ({error.strerror or 'timed out'})",
                "sidecarctl daemon start",
            ) from error
        return cls(reader, writer)

    async def call(
        self, method: str, params: dict[str, Any] | None = None, timeout_s: float = bounds.CALL_S
    ) -> Any:
        """The result of one request. Raises `SidecarError`: the daemon's, a `ConnectionLost`, or a
        `UsageError` for params that are no JSON."""
        request_id = next(self._ids)
        request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}
        try:
            line = encode(request)
        except ValueError as error:
            raise UsageError(f"{method}: {error}", "use finite numbers") from None
        if len(line) > bounds.CONTROL_LINE_BYTES:
            raise LineTooLong(bounds.CONTROL_LINE_BYTES)
        if self.lost:
            raise self._refusal or ConnectionLost("the connection to the daemon is closed")
        answer = self._pending[request_id] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                self._writer.write(line)
                # a broken pipe is told by the reader, which still delivers answers sent before it
                with contextlib.suppress(ConnectionError):
                    await self._writer.drain()
                return await answer
        except TimeoutError:
            raise SidecarError(
                "timed_out",
                f"{method} was not answered within {timeout_s:g} s",
                "sidecarctl daemon status",
            ) from None
        finally:
            del self._pending[request_id]

    async def notifications(self) -> AsyncIterator[Notification]:
        """What the daemon sends unasked, in order. Ends only by `ConnectionLost`."""
        while (notification := await self._queue.get()) is not None:
            yield notification
        raise ConnectionLost("the daemon closed the connection")

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _read(self) -> None:
        splitter = LineSplitter(bounds.CONTROL_LINE_BYTES)
        reason = "the daemon closed the connection"
        try:
            while chunk := await self._reader.read(_READ_BYTES):
                for line in splitter.feed(chunk):
                    await self._take(json.loads(line))
        except (OSError, ValueError, LineTooLong) as error:
            reason = f"the connection to the daemon broke: {error}"
        finally:
            self.lost = True
            for answer in self._pending.values():
                if not answer.done():
                    answer.set_exception(self._refusal or ConnectionLost(reason))
        await self._queue.put(None)

    async def _take(self, message: dict[str, Any]) -> None:
        if "method" in message:
            await self._queue.put((message["method"], message.get("params") or {}))
            return
        if "error" in message and message.get("id") is None:
            self._refusal = SidecarError.from_wire(message["error"])
            return
        answer = self._pending.get(message.get("id") or 0)
        if answer is None or answer.done():
            return  # the caller gave up on it
        if "error" in message:
            answer.set_exception(SidecarError.from_wire(message["error"]))
        else:
            answer.set_result(message.get("result"))
