"""The demo model as the real SDK sees it, over loopback and over a Unix socket."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import AsyncAnthropic, AsyncStream

from session_worker.demo_model import (
    DEMO_MODEL_ID,
    ApiError,
    DemoModel,
    Fault,
    Json,
    Reply,
    Streamed,
    queue_script,
    serve_unix,
    stream,
    text,
    thinking,
    tool_use,
)
from tests.support.model_server import model_server

EVENTUALLY_S = 5.0
"""For what happens at once; only a broken build waits this long."""
SILENCE_S = 0.2
"""After this a client counts a stream as stalled."""
KEY = "sk-not-to-be-kept"
BASH = {"name": "bash", "description": "runs", "input_schema": {"type": "object"}}


@asynccontextmanager
async def client_of(
    model: DemoModel, path: Path | None = None, read_s: float = EVENTUALLY_S
) -> AsyncGenerator[AsyncAnthropic]:
    """The SDK on a model that is served for as long as the block lasts."""
    transport = httpx2.AsyncHTTPTransport(uds=str(path)) if path else None
    http = anthropic.DefaultAsyncHttpxClient(
        transport=transport, trust_env=False, timeout=httpx2.Timeout(EVENTUALLY_S, read=read_s)
    )
    async with (
        model.serve_unix(path) if path else model.serve_tcp() as base_url,
        AsyncAnthropic(api_key=KEY, base_url=base_url, max_retries=0, http_client=http) as client,
    ):
        yield client


def request(*messages: Any, **more: Any) -> Any:
    said = [{"role": "user", "content": m} if isinstance(m, str) else m for m in messages]
    return {"model": DEMO_MODEL_ID, "max_tokens": 100, "messages": said or [], **more}


async def events_of(client: AsyncAnthropic, body: Any) -> list[Json]:
    """What a loop reads that assembles its messages itself."""
    async with client.messages.with_streaming_response.create(**body, stream=True) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        raw = AsyncStream.raw_events(response.http_response)
        return [json.loads(event.data) async for event in raw]


async def gone(tasks: set[asyncio.Task[Any]]) -> None:
    """Waits for the end of what the server does for one client."""
    async with asyncio.timeout(EVENTUALLY_S):
        await asyncio.gather(*tasks, return_exceptions=True)


def model_of(*answers: Reply | ApiError) -> DemoModel:
    return DemoModel(queue_script(answers), keep_requests=10)


@pytest.mark.parametrize("over", ["tcp", "unix"])
async def test_a_prompt_becomes_parallel_calls_and_then_an_answer(
    over: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.sock" if over == "unix" else None
    async with client_of(DemoModel(), path) as client:
        body = request("list the files and show the git branch !thinking", tools=[BASH])
        async with client.messages.stream(**body) as streamed:
            first = await streamed.get_final_message()
        assert [block.type for block in first.content] == [
            "thinking",
            "text",
            "tool_use",
            "tool_use",
        ]
        assert first.stop_reason == "tool_use"
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": output}
            for block, output in zip(first.content[2:], ("hello.py", "main"), strict=True)
            if block.type == "tool_use"
        ]
        body["messages"] += [
            {"role": "assistant", "content": [block.to_dict() for block in first.content]},
            {"role": "user", "content": results},
        ]
        async with client.messages.stream(**body) as streamed:
            final = await streamed.get_final_text()
        assert "`git branch --show-current`: main" in final


async def test_a_message_without_streaming_is_the_same_message() -> None:
    content = [text("hello"), {**tool_use("bash", {"command": "ls"}), "id": "toolu_1"}]
    said = Reply(content, usage={"output_tokens": 5})
    async with client_of(model_of(said, said)) as client:
        whole = await client.messages.create(**request("hi"))
        async with client.messages.stream(**request("hi")) as streamed:
            streamed_whole = await streamed.get_final_message()
    assert [block.to_dict() for block in whole.content] == content
    assert whole.stop_reason == streamed_whole.stop_reason == "tool_use"
    assert whole.usage.output_tokens == streamed_whole.usage.output_tokens == 5


async def test_every_shape_of_block_survives_the_wire() -> None:
    content: list[Any] = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        Streamed({"type": "brand_new", "x": 1}, [{"type": "new_delta", "y": 2}]),
        Streamed({"type": "tool_use", "id": "toolu_1", "name": "a", "input": {"ready": True}}),
    ]
    said = Reply(content, start={"container": {"id": "c", "expires_at": "2026-12-01T00:00:00Z"}})
    async with client_of(model_of(said)) as client:
        events = await events_of(client, request("hi"))
    starts = [e["content_block"] for e in events if e["type"] == "content_block_start"]
    assert starts[1:] == [content[1], content[2].start, content[3].start]
    assert {"type": "new_delta", "y": 2} in [event.get("delta") for event in events]
    assert events[0]["message"]["container"]["id"] == "c"
    assert events[-1] == {"type": "message_stop"}


@pytest.mark.parametrize("chunk_bytes", [1, 7, 100_000])
async def test_text_arrives_whole_however_the_body_is_cut(chunk_bytes: int) -> None:
    words = "你好, 世界 🎉 naïve\n"
    async with (
        client_of(model_of(Reply([text(words)], chunk_bytes=chunk_bytes))) as client,
        client.messages.stream(**request("hi")) as streamed,
    ):
        assert await streamed.get_final_text() == words


async def test_scripted_events_arrive_as_they_are() -> None:
    script: list[Json] = [{"type": "message_start", "message": {}}, {"type": "odd", "x": [1]}]
    async with client_of(model_of(Reply(events=script))) as client:
        assert await events_of(client, request("hi")) == script


async def test_an_error_in_the_stream_is_an_event_and_for_the_helper_an_exception() -> None:
    said = Reply([text("never whole")], fault=Fault("overloaded", after=3))
    async with client_of(model_of(said, said)) as client:
        events = await events_of(client, request("hi"))
        assert events[-1]["error"]["type"] == "overloaded_error"
        with pytest.raises(anthropic.APIStatusError) as raised:
            async with client.messages.stream(**request("hi")) as streamed:
                await streamed.get_final_message()
    assert (raised.value.status_code, raised.value.type) == (200, "overloaded_error")


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault("cut"), httpx2.RemoteProtocolError),
        (Fault("reset"), httpx2.ReadError),
        (Fault("stall"), httpx2.ReadTimeout),
    ],
)
async def test_a_broken_connection_breaks_the_read(fault: Fault, error: type[Exception]) -> None:
    async with client_of(model_of(Reply([text("x")], fault=fault)), read_s=SILENCE_S) as client:
        with pytest.raises(error):
            await events_of(client, request("hi"))


async def test_a_clean_end_may_come_too_early() -> None:
    cut = [Reply([text("x")], fault=Fault(kind, after=4)) for kind in ("eof", "half_event")]
    async with client_of(model_of(*cut)) as client:
        for _ in cut:
            events = await events_of(client, request("hi"))
            assert [event["type"] for event in events][-1] == "content_block_delta"


async def test_errors_have_their_status_their_type_and_their_headers() -> None:
    answers = [
        ApiError(529),
        ApiError(429, "slow down", {"retry-after": "7"}),
        ApiError(413, body="<html>too large</html>"),
        ApiError(200, body="<html>sign in</html>"),
    ]
    async with client_of(model_of(*answers)) as client:
        with pytest.raises(anthropic.OverloadedError):
            await events_of(client, request("hi"))
        with pytest.raises(anthropic.RateLimitError) as limited:
            await events_of(client, request("hi"))
        with pytest.raises(anthropic.APIStatusError) as large:
            await events_of(client, request("hi"))
        body = request("hi")
        async with client.messages.with_streaming_response.create(**body, stream=True) as page:
            assert page.headers["content-type"].startswith("text/html")
    assert limited.value.response.headers["retry-after"] == "7"
    assert limited.value.body["error"]["message"] == "slow down"
    assert limited.value.request_id == limited.value.body["request_id"]
    assert large.value.status_code == 413


async def test_a_call_without_its_result_is_refused_in_the_words_of_the_api() -> None:
    model = model_of()
    called = {**tool_use("bash", {"command": "ls"}), "id": "toolu_7"}
    async with client_of(model) as client:
        with pytest.raises(anthropic.BadRequestError) as raised:
            await events_of(client, request("hi", {"role": "assistant", "content": [called]}, "?"))
    assert "`tool_use` ids were found without `tool_result` blocks" in str(raised.value)
    assert list(model.unexpected) == []


async def test_a_body_that_is_no_json_is_a_bad_request() -> None:
    async with DemoModel().serve_tcp() as base_url, httpx2.AsyncClient(trust_env=False) as http:
        headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
        answer = await http.post(f"{base_url}/v1/messages", content=b"{", headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_models_and_tokens_can_be_asked_for() -> None:
    async with client_of(DemoModel(models=["one", "two"])) as client:
        assert [model.id async for model in client.models.list()] == ["one", "two"]
        counted = await client.messages.count_tokens(
            model="one", messages=[{"role": "user", "content": "x" * 400}]
        )
        assert counted.input_tokens > 100
        with pytest.raises(anthropic.NotFoundError, match="model: three"):
            await client.messages.create(**request("hi") | {"model": "three"})


async def test_the_cache_is_read_when_a_conversation_grows() -> None:
    anchor: Any = {"type": "ephemeral"}
    history = ["x" * 1000]
    async with client_of(DemoModel()) as client:
        first = await client.messages.create(**request(*history), cache_control=anchor)
        history += [{"role": "assistant", "content": "so"}, "more"]
        second = await client.messages.create(**request(*history), cache_control=anchor)
    assert second.usage.cache_read_input_tokens == first.usage.cache_creation_input_tokens
    assert first.usage.input_tokens == second.usage.input_tokens == 0


async def test_a_changed_thought_is_refused() -> None:
    async with client_of(model_of(Reply([thinking("hm"), text("so")]))) as client:
        said = await client.messages.create(**request("hi"))
        blocks = [block.to_dict() for block in said.content]
        blocks[0]["thinking"] = "never said"
        with pytest.raises(anthropic.BadRequestError, match="cannot be modified"):
            answered = {"role": "assistant", "content": blocks}
            await client.messages.create(**request("hi", answered, "and?"))


async def test_a_call_beyond_the_script_is_a_500_and_recorded() -> None:
    model = model_of()
    async with client_of(model) as client:
        with pytest.raises(anthropic.InternalServerError):
            await events_of(client, request("hi"))
    assert [received.body["messages"][0]["content"] for received in model.unexpected] == ["hi"]


async def test_calls_are_kept_without_their_secrets_and_never_too_many() -> None:
    model = DemoModel(keep_requests=2)
    async with client_of(model) as client:
        for words in ("one", "two", "three"):
            await client.messages.create(**request(words))
    assert [received.body["messages"][0]["content"] for received in model.requests] == [
        "two",
        "three",
    ]
    assert model.requests[0].headers["authorization"] == "[redacted]"
    assert KEY not in repr(model.requests)


async def test_a_client_that_leaves_ends_the_reply() -> None:
    async with client_of(model_of(Reply([text("x")], fault=Fault("stall")))) as client:
        before, body = asyncio.all_tasks(), request("hi")
        async with client.messages.with_streaming_response.create(**body, stream=True) as response:
            raw = aiter(AsyncStream.raw_events(response.http_response))
            await anext(raw)
            serving = asyncio.all_tasks() - before
            await raw.aclose()
        await gone(serving)


async def test_a_client_that_does_not_read_is_dropped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stream, "READER_S", 0.01)
    path, body = tmp_path / "model.sock", json.dumps(request("hi", stream=True))
    head = f"x-api-key: k\r\nanthropic-version: 1\r\ncontent-length: {len(body)}\r\n"
    endless = Reply(events=[{"type": "flood", "data": "x" * 1_000_000}] * 20)
    async with model_of(endless).serve_unix(path):
        before = asyncio.all_tasks()
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(f"POST /v1/messages HTTP/1.1\r\nhost: x\r\n{head}\r\n{body}".encode())
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        await gone(asyncio.all_tasks() - before)
        assert len(await reader.read()) < 20_000_000
        writer.close()


async def test_the_server_ends_under_an_unfinished_reply() -> None:
    async with client_of(model_of(Reply([text("x")], fault=Fault("stall")))) as client:
        body = request("hi")
        response = await client.messages.with_streaming_response.create(
            **body, stream=True
        ).__aenter__()
        await anext(aiter(AsyncStream.raw_events(response.http_response)))


async def test_the_socket_is_ours_alone_and_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "model.sock"
    path.write_text("what a dead worker left")
    async with serve_unix(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.is_socket()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("over", ["tcp", "unix"])
async def test_as_a_program_it_says_where_it_listens_and_ends_when_told(
    over: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.sock"
    where = ["--socket", str(path)] if over == "unix" else ["--port", "0"]
    command = [sys.executable, "-m", "session_worker.demo_model", *where]
    program = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert program.stdout is not None
    line = (await program.stdout.readline()).decode().strip()
    if over == "unix":
        assert line == f"unix:{path}"
    else:
        async with AsyncAnthropic(api_key=KEY, base_url=line, max_retries=0) as client:
            assert (await client.messages.create(**request("hi"))).model == DEMO_MODEL_ID
    program.send_signal(signal.SIGTERM)
    async with asyncio.timeout(EVENTUALLY_S):
        assert await program.wait() == 0
    assert not path.exists()


async def test_as_a_program_it_plays_a_scenario_or_says_what_is_wrong_with_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "scenario.json"
    path.write_text('{"v": 1, "steps": [{"reply": [{"txt": "x"}]}]}')
    command = [sys.executable, "-m", "session_worker.demo_model", "--scenario", str(path)]
    program = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, complaint = await program.communicate()
    assert program.returncode == 2
    assert b"steps.0.reply.0" in complaint


def test_the_model_server_of_other_tests_answers_from_its_thread() -> None:
    with (
        model_server([Reply([text("scripted")])]) as server,
        anthropic.Anthropic(api_key=KEY, base_url=server.base_url, max_retries=0) as client,
    ):
        said = client.messages.create(**request("hi"))
        assert [block.to_dict() for block in said.content] == [text("scripted")]
        assert len(server.requests) == 1


def test_the_model_server_of_other_tests_fails_on_a_call_too_many() -> None:
    with (
        pytest.raises(AssertionError, match="more often than scripted"),
        model_server([]) as server,
        anthropic.Anthropic(api_key=KEY, base_url=server.base_url, max_retries=0) as client,
        pytest.raises(anthropic.InternalServerError),
    ):
        client.messages.create(**request("hi"))
