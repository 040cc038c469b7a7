"""ACP-C over a WebSocket: one JSON-RPC message a text frame, both ways (acp.md §3.2)."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

from aiohttp import WSCloseCode, WSMsgType, web

from session_worker.http.acp_c import jsonrpc
from session_worker.http.acp_c.connection import Connection, Overloaded
from session_worker.http.acp_c.feed import Lost
from session_worker.http.acp_c.handlers import handle
from session_worker.http.acp_c.jsonrpc import RpcError
from session_worker.http.acp_c.registry import Registry
from session_worker.http.acp_c.streamable_http import CONNECTION_ID
from session_worker.http.keys import CORE
from sidecar.protocol import bounds


def is_wanted(request: web.Request) -> bool:
    return request.headers.get("Upgrade", "").lower() == "websocket"


async def serve(request: web.Request, registry: Registry) -> web.StreamResponse:
    """Until either side leaves. A client that takes too little is closed with 1013, try again
    later; one whose worker ends, with 1001."""
    connection = registry.open(request.app[CORE], single_stream=True)
    socket = web.WebSocketResponse(
        heartbeat=bounds.SSE_KEEPALIVE_S,
        max_msg_size=bounds.HTTP_BODY_BYTES,
        timeout=bounds.LAST_ANSWERS_S,
        compress=False,  # it never leaves this machine
    )
    socket.headers[CONNECTION_ID] = connection.id
    try:
        await socket.prepare(request)
        with connection.stream(None, request):
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(connection.listen()),
                    group.create_task(_send(request, socket, connection)),
                ]
                await _receive(socket, connection)
                for task in tasks:
                    task.cancel()
    finally:
        registry.close(connection)
    return socket


async def _receive(socket: web.WebSocketResponse, connection: Connection) -> None:
    async for frame in socket:
        if frame.type is not WSMsgType.TEXT:
            continue
        try:
            message = jsonrpc.parse(frame.data)
            connection.check_room()
        except RpcError as refusal:
            connection.send(jsonrpc.error(refusal.request_id, refusal))
            connection.ring()
        except Overloaded:
            connection.close()
        else:
            handle(connection, message)


async def _send(
    request: web.Request, socket: web.WebSocketResponse, connection: Connection
) -> None:
    code = WSCloseCode.TRY_AGAIN_LATER
    with suppress(Lost, ConnectionError, TimeoutError):
        while not connection.closed:
            for _, message in (batch := await connection.pull(None)):
                async with asyncio.timeout(bounds.SSE_WRITE_S):
                    await socket.send_str(json.dumps(message))
            if not batch and connection.core.log.ended:
                code = WSCloseCode.GOING_AWAY
                break
            if not batch:
                await connection.wait(bounds.SSE_KEEPALIVE_S)
    try:
        async with asyncio.timeout(bounds.SSE_WRITE_S):
            await socket.close(code=code)
    except (TimeoutError, ConnectionError):
        if request.transport is not None:
            request.transport.abort()
