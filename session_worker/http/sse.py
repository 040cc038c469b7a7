"""One server-sent event stream over the session's ring.

The reader's pace is its own: it has a cursor in the ring, a bounded buffer and a deadline, and
loses its stream when it stalls. The agent never waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from traceback import clear_frames

from aiohttp import web

from session_worker.event_log import EventLog
from sidecar.protocol import bounds
from sidecar.protocol.ring import Gap, Record, RingReader

KEEP_ALIVE = b": keep-alive\n\n"


class EventStream:
    """A prepared response. `send` raises ConnectionError for a client that went or stalled."""

    def __init__(self, response: web.StreamResponse) -> None:
        self._response = response

    @classmethod
    async def open(cls, request: web.Request, **headers: str) -> EventStream:
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-cache",
                "X-Accel-Buffering": "no",  # a proxy that collects the stream makes it useless
                **headers,
            }
        )
        await response.prepare(request)
        if request.transport is not None:
            request.transport.set_write_buffer_limits(high=bounds.SSE_BUFFER_BYTES)  # pyright: ignore
        return cls(response)

    async def send(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(bounds.SSE_WRITE_S):
                await self._response.write(data)
        except ConnectionError as error:
            # aiohttp's frame and the exception hold each other, and both what was being sent
            clear_frames(error.__traceback__)
            raise
        except TimeoutError:
            raise ConnectionResetError("the client takes nothing") from None

    async def end(self) -> web.StreamResponse:
        with suppress(ConnectionError):  # the client has left
            await self._response.write_eof()
        return self._response


async def follow(
    log: EventLog, reader: RingReader, *, after: int, to_the_end: bool
) -> AsyncGenerator[list[Record | Gap], None]:
    """Batches from `reader`, which stands behind event `after`; an empty one when nothing came
    for a while. With `to_the_end` it stops at the newest event. Closes the reader."""
    with reader:
        while True:
            batch = reader.read(bounds.RING_READ_BATCH)
            if batch:
                last = batch[-1]
                after = last.seq if isinstance(last, Record) else last.to_seq
                yield batch
            elif to_the_end or log.ended:
                return
            elif not await log.wait_beyond(after, bounds.SSE_KEEPALIVE_S):
                yield []


def sse(data: bytes, *, event: str | None = None, number: int | None = None) -> bytes:
    """One event. `data` is JSON, so it holds no line end."""
    head = b"" if number is None else b"id: %d\n" % number
    if event is not None:
        head += b"event: " + event.encode() + b"\n"
    return head + b"data: " + data + b"\n\n"
