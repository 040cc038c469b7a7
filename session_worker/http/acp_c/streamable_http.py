"""ACP-C over streamable HTTP: POST says, GET listens, DELETE leaves (acp.md §3.2, §3.5).

Tolerant by the ten rules there: the official SDKs do not agree with each other.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiohttp import web

from session_worker.http.acp_c import jsonrpc
from session_worker.http.acp_c.connection import Connection, Overloaded
from session_worker.http.acp_c.feed import Lost, Outgoing
from session_worker.http.acp_c.handlers import handle
from session_worker.http.acp_c.jsonrpc import Answer, BatchRefused, Incoming, Request, RpcError
from session_worker.http.acp_c.registry import Registry
from session_worker.http.cursor import last_event_id
from session_worker.http.errors import HttpError
from session_worker.http.keys import CORE
from session_worker.http.sse import KEEP_ALIVE, EventStream, sse
from sidecar.protocol import bounds

CONNECTION_ID = "Acp-Connection-Id"
SESSION_ID = "Acp-Session-Id"

STREAMS_MAX = 16
"""Open streams of one connection: it has use for two, but one for a session that is not here must
not be refused either (acp.md §3.5, rule 3)."""


async def post(request: web.Request, registry: Registry) -> web.StreamResponse:
    """Takes one message; what it answers comes over a stream, but for `initialize`."""
    try:
        message = jsonrpc.parse(await request.read())
    except RpcError as refusal:
        return _refused(501 if isinstance(refusal, BatchRefused) else 400, refusal)
    if isinstance(message, Request) and message.method == "initialize":
        return await _initialize(request, registry, message)
    connection = _connection(request, registry)
    if contradiction := _contradiction(request, message):
        return _refused(400, contradiction)
    if isinstance(message, Request) and request.headers.get("Accept") == "text/event-stream":
        return await _answer_here(request, connection, message)
    try:
        connection.check_room()
    except Overloaded:
        raise HttpError(503, "overloaded", "nobody takes the answers of this connection") from None
    handle(connection, message)
    return web.Response(status=202)


async def _initialize(
    request: web.Request, registry: Registry, message: Request
) -> web.StreamResponse:
    if CONNECTION_ID in request.headers:
        refusal = RpcError(jsonrpc.INVALID_REQUEST, "this connection is initialized already")
        return web.json_response(jsonrpc.error(message.id, refusal), status=400)
    connection = registry.open(request.app[CORE], single_stream=False)
    handle(connection, message)
    ((_, answer),) = await connection.pull(None)
    if "error" in answer:
        registry.close(connection)
        return web.json_response(answer, status=400)
    return web.json_response(answer, headers={CONNECTION_ID: connection.id})


def _connection(request: web.Request, registry: Registry) -> Connection:
    connection_id = request.headers.get(CONNECTION_ID)
    if connection_id is None:
        raise HttpError(400, "invalid_input", f"{CONNECTION_ID} is missing; POST initialize first")
    connection = registry.find(connection_id)
    if connection is None:
        raise HttpError(404, "not_found", "that connection is not open; POST initialize again")
    return connection


def _contradiction(request: web.Request, message: Incoming) -> RpcError | None:
    """A session in the header that is not the one of the message. Answers go by their id alone."""
    header = request.headers.get(SESSION_ID)
    if header is None or isinstance(message, Answer):
        return None
    named = message.params.get("sessionId")
    if named is None or named == header:
        return None
    request_id = message.id if isinstance(message, Request) else None
    text = f"{SESSION_ID} and params.sessionId are not the same"
    return RpcError(jsonrpc.INVALID_PARAMS, text, request_id=request_id)


def _refused(status: int, refusal: RpcError) -> web.Response:
    return web.json_response(jsonrpc.error(refusal.request_id, refusal), status=status)


async def delete(request: web.Request, registry: Registry) -> web.StreamResponse:
    registry.close(_connection(request, registry))
    return web.Response(status=202)


async def get(request: web.Request, registry: Registry) -> web.StreamResponse:
    """The connection's stream, or a session's; one reader each. One that reconnects may say which
    event it has seen last."""
    accepted = request.headers.get("Accept", "*/*")
    if not any(kind in accepted for kind in ("text/event-stream", "text/*", "*/*")):
        raise HttpError(406, "invalid_input", "this is a text/event-stream")
    connection = _connection(request, registry)
    name = request.headers.get(SESSION_ID)
    seen = last_event_id(request, connection.core.log.last_seq)
    other = connection.streams.get(name)
    if isinstance(other, web.Request) and _is_open(other):
        raise HttpError(409, "conflict", "that stream is open already")
    if other is None and len(connection.streams) >= STREAMS_MAX:
        raise HttpError(503, "overloaded", f"{STREAMS_MAX} streams of this connection are open")

    if seen is not None:
        connection.go_on_behind(name, seen)

    async def pull() -> list[Outgoing] | None:
        if not connection.carried_by(name, request):
            return None
        return await connection.pull(name)

    with connection.stream(name, request):
        return await _stream(request, connection, pull)


def _is_open(request: web.Request) -> bool:
    """Whether its client is still there: a dead one is noticed only when something is sent."""
    return request.transport is not None and not request.transport.is_closing()


async def _answer_here(
    request: web.Request, connection: Connection, message: Request
) -> web.StreamResponse:
    """For curl: what happens in the session, over this response, up to the answer."""
    answered = False
    with connection.post_stream() as feed:
        handle(connection, message, feed)

        async def pull() -> list[Outgoing] | None:
            nonlocal answered
            if answered:
                return None
            batch = await feed.pull()
            for index, (_, sent) in enumerate(batch):
                if "method" not in sent and sent["id"] == message.id:
                    answered = True
                    return batch[: index + 1]
            return batch

        return await _stream(request, connection, pull)


async def _stream(
    request: web.Request,
    connection: Connection,
    pull: Callable[[], Awaitable[list[Outgoing] | None]],
) -> web.StreamResponse:
    """What `pull` has, as it comes, until that is None or there will be no more. A client that
    takes nothing for too long, or too little, loses its stream."""
    stream = await EventStream.open(request, **{CONNECTION_ID: connection.id})
    try:
        async with asyncio.TaskGroup() as group:
            bell = group.create_task(connection.listen())
            with suppress(Lost):
                await _carry(stream, connection, pull)
            bell.cancel()
        async with asyncio.timeout(bounds.SSE_WRITE_S):
            return await stream.end()
    except* (ConnectionError, TimeoutError):
        if request.transport is not None:
            request.transport.abort()
    return web.Response()  # for nobody


async def _carry(
    stream: EventStream,
    connection: Connection,
    pull: Callable[[], Awaitable[list[Outgoing] | None]],
) -> None:
    await stream.send(KEEP_ALIVE)  # headers alone would wait for it, and clients for them
    while (batch := await pull()) is not None:
        if batch:
            await stream.send(b"".join(sse(json.dumps(m).encode(), number=n) for n, m in batch))
        elif connection.closed or connection.core.log.ended:
            return
        elif not await connection.wait(bounds.SSE_KEEPALIVE_S):
            await stream.send(KEEP_ALIVE)
