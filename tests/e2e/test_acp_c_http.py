"""ACP-C over streamable HTTP: its statuses, its streams, and clients that use them as they like."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from session_worker.demo_model import Reply, text
from session_worker.http.acp_c.connection import BACKLOG_MESSAGES
from session_worker.http.acp_c.jsonrpc import ID_CHARS
from session_worker.http.acp_c.registry import CONNECTIONS_MAX
from tests.support.acp_client import http_session, over_http
from tests.support.daemon import Daemon
from tests.support.scripted import FINE, Scripted, bash, scripted_session

Json = dict[str, Any]
INITIALIZE: Json = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": 1},
}
JSON_TYPE = {"Content-Type": "application/json"}


async def _post(http: aiohttp.ClientSession, body: Any, **headers: str) -> tuple[int, Json]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with http.post("/acp", data=data, headers=JSON_TYPE | headers) as response:
        return response.status, json.loads(await response.read() or b"{}")


@pytest.mark.parametrize("streams", ["eager", "late"])
async def test_clients_may_open_their_streams_early_or_late(
    scripted: Scripted, streams: str
) -> None:
    scripted.answers.extend([FINE] * 3)
    async with over_http(scripted.endpoint, streams=streams) as client:
        await client.new()
        assert await client.prompt() == "end_turn"
        assert set(client.statuses) == {202}
    async with over_http(scripted.endpoint, streams=streams) as client:
        await client.resume()
        assert await client.prompt() == "end_turn"
        assert client.texts() == "fine"
    async with over_http(scripted.endpoint, streams=streams) as client:
        await client.load()
        assert await client.prompt() == "end_turn"
        assert client.texts() == "fine" * 3


async def test_lines_carry_the_numbers_of_events(scripted: Scripted) -> None:
    scripted.answers.append(FINE)
    async with over_http(scripted.endpoint) as client:
        await client.new()
        await client.prompt()
        metas = [m["params"]["_meta"] for m in client.seen if "_meta" in m.get("params", {})]
        assert client.numbers == sorted(client.numbers)
        assert {meta["sidecar/seq"] for meta in metas} <= set(client.numbers)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{not json", 400, -32700),
        (b"[" * 100_000, 400, -32700),
        (b'{"jsonrpc": "2.0", "id": NaN, "method": "x"}', 400, -32700),
        (b'"text"', 400, -32600),
        ([INITIALIZE], 501, -32600),
        ({"id": 1, "method": "initialize"}, 400, -32600),
        ({**INITIALIZE, "id": "x" * (ID_CHARS + 1)}, 400, -32600),
        ({**INITIALIZE, "id": [1]}, 400, -32600),
        ({**INITIALIZE, "params": [1]}, 400, -32602),
        ({**INITIALIZE, "params": {}}, 400, -32602),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_what_is_no_message_is_refused(
    scripted: Scripted, body: Any, status: int, code: int
) -> None:
    async with http_session(scripted.endpoint) as http:
        got, answer = await _post(http, body)
        assert (got, answer["error"]["code"]) == (status, code)


async def test_headers_decide_what_a_request_belongs_to(scripted: Scripted) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "session/list"}
    async with over_http(scripted.endpoint, streams="none") as client:
        http, mine = client.http, client.headers
        assert (await _post(http, ping))[0] == 400
        assert (await _post(http, ping, **{"Acp-Connection-Id": "another"}))[0] == 404
        assert (await _post(http, INITIALIZE, **mine))[0] == 400
        named = {**ping, "params": client.named}
        assert (await _post(http, named, **mine, **{"Acp-Session-Id": "another"}))[0] == 400
        assert (await _post(http, named, **mine))[0] == 202
        for headers, status in (({"Accept": "text/html"}, 406), ({}, 400)):
            async with http.get("/acp", headers=headers) as response:
                assert response.status == status


async def test_a_stream_has_one_reader(scripted: Scripted) -> None:
    async with over_http(scripted.endpoint) as client:
        headers = client.headers | {"Accept": "text/event-stream"}
        async with client.http.get("/acp", headers=headers) as response:
            assert response.status == 409


async def test_a_stream_of_an_unknown_session_stays_open_and_silent(scripted: Scripted) -> None:
    scripted.answers.append(FINE)
    async with over_http(scripted.endpoint) as client:
        assert await client.listen("no-such-session") == 200
        await client.new()
        assert await client.prompt() == "end_turn"


async def test_one_request_can_bring_its_own_stream(scripted: Scripted) -> None:
    scripted.answers.append(FINE)
    async with over_http(scripted.endpoint, streams="none") as client:
        prompt = {"sessionId": client.session_id, "prompt": [{"type": "text", "text": "go"}]}
        body = {"jsonrpc": "2.0", "id": 9, "method": "session/prompt", "params": prompt}
        headers = client.headers | {"Accept": "text/event-stream"}
        async with client.http.post("/acp", json=body, headers=headers) as response:
            lines = [line async for line in response.content if line.startswith(b"data: ")]
        messages = [json.loads(line[6:]) for line in lines]
        updates = [m["params"]["update"] for m in messages[:-1]]
        said = [
            u["content"]["text"] for u in updates if u["sessionUpdate"] == "agent_message_chunk"
        ]
        assert "".join(said) == "fine"
        assert messages[-1]["id"] == 9 and messages[-1]["result"]["stopReason"] == "end_turn"


async def test_what_nobody_listens_to_waits_for_the_stream(scripted: Scripted) -> None:
    async with over_http(scripted.endpoint, streams="none") as client:
        await client.start("session/new", cwd="/", mcpServers=[])
        request_id = await client.begin("go")
        scripted.answers.append(FINE)
        scripted.was_asked(1)
        await client.listen(client.session_id)
        assert (await client.answer_to(request_id))["result"]["stopReason"] == "end_turn"
        assert client.texts() == "fine"


async def test_a_session_stream_that_broke_goes_on_where_it_ended(scripted: Scripted) -> None:
    scripted.answers.append(Reply([text("one two three four five six seven")], tps=20))
    async with over_http(scripted.endpoint, streams="none") as client:
        await client.start("session/new", cwd="/", mcpServers=[])
        request_id = await client.begin("go")
        headers = client.headers | {"Acp-Session-Id": client.session_id}
        async with client.http.get("/acp", headers=headers) as response:
            async for line in response.content:
                if line.startswith(b"data: "):
                    client.received(json.loads(line[6:]))
                    if client.texts():
                        break
        await client.listen(client.session_id)
        await client.answer_to(request_id)
        assert client.texts() == "one two three four five six seven"


async def test_requests_of_a_client_that_takes_no_answers_are_refused_at_last(
    scripted: Scripted,
) -> None:
    async with over_http(scripted.endpoint, streams="none") as client:
        for _ in range(BACKLOG_MESSAGES + 1):
            await client.start("session/list")
        assert client.statuses[-1] == 503 and set(client.statuses[:-1]) == {202}
        await client.listen(None)
        await client.answer_to(BACKLOG_MESSAGES)  # the last that was taken
        await client.call("session/list")


async def test_a_client_that_vanishes_is_no_error(daemon: Daemon, scripted: Scripted) -> None:
    async with over_http(scripted.endpoint, streams="none") as client:
        for name in ({}, {"Acp-Session-Id": client.session_id}):
            response = await client.http.get("/acp", headers=client.headers | name)
            response.close()
        scripted.completes()
        for session_id in (None, client.session_id):  # the dead ones are no readers
            assert await client.listen(session_id) == 200
    directory = daemon.home / "state/sessions" / scripted.endpoint.session_id
    assert "ERROR" not in (directory / "worker.log").read_text()


async def test_leaving_ends_the_streams_and_not_the_run(scripted: Scripted) -> None:
    scripted.answers.extend([Reply([bash("true")]), FINE])
    async with over_http(scripted.endpoint) as client:
        await client.new()
        await client.begin("go")
        async with client.http.delete("/acp", headers=client.headers) as response:
            assert response.status == 202
        async with client.http.delete("/acp", headers=client.headers) as response:
            assert response.status == 404
    (run_id,) = {event["run_id"] for event in scripted.endpoint.events()} - {None}
    assert scripted.ended(run_id)["status"] == "completed"


async def test_connections_are_bounded_and_room_is_found_again(scripted: Scripted) -> None:
    async with http_session(scripted.endpoint) as http:
        ids: list[str] = []
        for _ in range(CONNECTIONS_MAX):
            async with http.post("/acp", json=INITIALIZE) as response:
                assert response.status == 200
                ids.append(response.headers["Acp-Connection-Id"])
        assert (await _post(http, INITIALIZE))[0] == 503
        async with http.delete("/acp", headers={"Acp-Connection-Id": ids[0]}) as response:
            assert response.status == 202
        assert (await _post(http, INITIALIZE))[0] == 200


async def test_a_slow_reader_loses_its_stream_and_the_agent_no_time(
    daemon: Daemon, work: Path
) -> None:
    with scripted_session(daemon, work, ring_bytes=64 * 1024) as scripted:
        async with over_http(scripted.endpoint, streams="none") as client:
            await client.start("session/new", cwd="/", mcpServers=[])
            headers = client.headers | {"Acp-Session-Id": client.session_id}
            with scripted.endpoint.stream("GET", "/acp", **headers) as messages:
                long = Reply([text("word " * 20_000)])
                await asyncio.to_thread(scripted.prompt, long)
                for message in await asyncio.to_thread(list, messages):
                    client.received(message)
            assert "sidecar/gap" in client.updates()[-1]["_meta"]
            await client.listen(client.session_id)
            scripted.completes()
            await client.until(lambda _: client.texts().endswith("fine"), "what came later")


async def test_what_a_session_starts_may_not_become_its_client(
    scripted: Scripted, work: Path
) -> None:
    curl = "curl -s -o answer -w '%{http_code} ' --unix-socket $1 http://localhost/acp"
    script = f"{curl} --json @initialize\n{curl} -H 'Connection: Upgrade' -H 'Upgrade: websocket'"
    (work / "join.sh").write_text(script)
    (work / "socket").write_text(scripted.endpoint.path)
    (work / "initialize").write_text(json.dumps(INITIALIZE))
    scripted.prompt(Reply([bash('sh join.sh "$(cat socket)"')]), FINE)
    assert "403 403" in str(scripted.sent[-1])
