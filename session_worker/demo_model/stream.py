"""Carries a reply out over HTTP: its pace, its pieces, and what goes wrong with it.

Called by the server. Ends when its client leaves (the handler is cancelled) or stops reading.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator, Sequence

from aiohttp import web

from session_worker.demo_model.directives import OVERLOADED
from session_worker.demo_model.reply import Fault, FaultKind, Json, Reply
from session_worker.demo_model.wire import CHARS_PER_TOKEN, delta_chars, encode

READER_S = 10.0
"""A client that takes nothing for this long is dropped, never waited for."""

OVERLOADED_EVENT: Json = {
    "type": "error",
    "error": {"type": "overloaded_error", "message": OVERLOADED},
}


async def send_stream(
    request: web.Request, reply: Reply, events: Sequence[Json], request_id: str
) -> web.StreamResponse:
    """Sends the events as server-sent events in a chunked body, up to the reply's fault."""
    if reply.fault == Fault("stall", 0):
        await asyncio.Event().wait()
    response = web.StreamResponse(
        headers={
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "request-id": request_id,
        }
    )
    await response.prepare(request)
    try:
        for pause_s, piece in chunks(reply, events):
            # even a pause of nothing lets the piece leave on its own, and others have their turn
            await asyncio.sleep(pause_s)
            async with asyncio.timeout(READER_S):
                await response.write(piece)
    except ConnectionError:
        pass  # the client left: nobody is there to be told
    except TimeoutError:
        drop(request, "reset")
    else:
        if reply.fault and reply.fault.kind == "stall":
            await asyncio.Event().wait()
        if reply.fault:
            drop(request, reply.fault.kind)
    return response


def chunks(reply: Reply, events: Sequence[Json]) -> Iterator[tuple[float, bytes]]:
    """The pieces of the body, each with the pause before it."""
    sent, end = (events, b"") if reply.fault is None else _until(reply.fault, events)
    if reply.chunk_bytes:
        body = b"".join(map(encode, sent)) + end
        for at in range(0, len(body), reply.chunk_bytes):
            yield 0.0, body[at : at + reply.chunk_bytes]
        return
    for event in sent:
        yield _pause_s(event, reply.tps), encode(event)
    if end:
        yield 0.0, end


def _until(fault: Fault, events: Sequence[Json]) -> tuple[Sequence[Json], bytes]:
    """The events before a fault, and the bytes it adds."""
    after = len(events) // 2 if fault.after is None else fault.after
    end = b""
    if fault.kind == "half_event":
        whole = b"".join(map(encode, events[after : after + 1]))
        end = whole[: len(whole) // 2]
    if fault.kind == "overloaded":
        end = encode(OVERLOADED_EVENT)
    return events[:after], end


def _pause_s(event: Json, tps: float | None) -> float:
    if not tps or event["type"] != "content_block_delta":
        return 0.0
    return delta_chars(event["delta"]) / CHARS_PER_TOKEN / tps


def drop(request: web.Request, kind: FaultKind) -> None:
    """Breaks the connection off as this fault does, if it does."""
    transport = request.transport
    if transport and kind == "cut":
        transport.close()
    if transport and kind == "reset":
        # closing with a linger time of nothing sends RST instead of FIN
        linger = struct.pack("ii", 1, 0)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        transport.abort()
