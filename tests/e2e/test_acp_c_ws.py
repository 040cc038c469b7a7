"""ACP-C over a WebSocket: frames, and the ways a connection ends."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType

from session_worker.demo_model import Reply, text
from sidecar.protocol import bounds
from tests.support.acp_client import http_session, over_websocket
from tests.support.daemon import Daemon
from tests.support.scripted import FINE, Scripted, scripted_session

Json = dict[str, Any]


async def test_the_handshake_names_the_connection(scripted: Scripted) -> None:
    async with http_session(scripted.endpoint) as http, http.ws_connect("/acp") as socket:
        assert socket._response.headers["Acp-Connection-Id"]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{not json", -32700),
        ('[{"jsonrpc": "2.0", "id": 1, "method": "initialize"}]', -32600),
        ('{"id": 1, "method": "initialize"}', -32600),
        ('{"jsonrpc": "2.0", "id": 1, "method": "session/list"}', -32600),
        ('{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}', -32602),
    ],
)
async def test_what_is_no_message_is_answered_and_the_connection_lives(
    scripted: Scripted, frame: str, code: int
) -> None:
    async with http_session(scripted.endpoint) as http, http.ws_connect("/acp") as socket:
        await socket.send_bytes(b"ignored")
        await socket.send_str(frame)
        assert (await socket.receive_json())["error"]["code"] == code
        params = {"protocolVersion": 1}
        message = {"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": params}
        for wanted in ("result", "error"):  # and not twice
            await socket.send_json(message)
            assert wanted in await socket.receive_json()


async def test_web_pages_are_refused(scripted: Scripted) -> None:
    async with http_session(scripted.endpoint) as http:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect("/acp", origin="http://localhost")
        assert refused.value.status == 403


async def test_a_frame_that_is_too_long_ends_the_connection_alone(scripted: Scripted) -> None:
    async with http_session(scripted.endpoint) as http, http.ws_connect("/acp") as socket:
        with suppress(ConnectionError):  # it may be closed before all of it is taken
            await socket.send_str(" " * (bounds.HTTP_BODY_BYTES + 1))
        frame = await socket.receive()
        assert frame.type in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.ERROR)
    scripted.completes()


async def test_a_client_that_vanishes_ends_nothing(scripted: Scripted) -> None:
    scripted.answers.append(Reply([text("one two three four five")], tps=20))
    async with over_websocket(scripted.endpoint) as client:
        await client.new()
        await client.begin("go")
        await client.update("agent_message_chunk")
    (run_id,) = {event["run_id"] for event in scripted.endpoint.events()} - {None}
    assert scripted.ended(run_id)["status"] == "completed"


async def test_a_session_that_ends_says_so_to_its_clients(daemon: Daemon, work: Path) -> None:
    with scripted_session(daemon, work) as scripted:
        async with over_websocket(scripted.endpoint) as client:
            await client.new()
            session_id = scripted.endpoint.session_id
            await asyncio.to_thread(daemon.call, "session.destroy", session_id=session_id)
        assert client.socket.close_code == 1001


async def test_a_slow_reader_is_told_to_come_back_and_the_agent_loses_no_time(
    daemon: Daemon, work: Path
) -> None:
    with scripted_session(daemon, work, ring_bytes=64 * 1024) as scripted:
        async with http_session(scripted.endpoint) as http, http.ws_connect("/acp") as socket:
            for number, (method, params) in enumerate(
                (("initialize", {"protocolVersion": 1}), ("session/new", {"cwd": "/"}))
            ):
                message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                await socket.send_json(message)
                await socket.receive_json()
            transport = socket._conn.transport
            transport.pause_reading()
            await asyncio.to_thread(scripted.prompt, Reply([text("word " * 20_000)]))
            transport.resume_reading()
            last: Json = {}
            async for frame in socket:
                last = json.loads(frame.data)
            assert socket.close_code == 1013
            assert "sidecar/gap" in last["params"]["update"]["_meta"]
        scripted.prompt(FINE)
