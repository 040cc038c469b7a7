"""Coming to a session that has a past: all of it is told, once, before the answer and in order."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model import Reply, text, thinking, tool_use
from session_worker.http.acp_c.feed import REPLAY_STEP
from tests.support.acp_client import AcpClient, over_http, over_websocket
from tests.support.daemon import Daemon
from tests.support.questions import asked
from tests.support.scripted import FINE, Scripted, bash, scripted_session

Json = dict[str, Any]
TRANSPORTS = {
    "http": over_http,
    "late http": lambda endpoint: over_http(endpoint, streams="late"),
    "websocket": over_websocket,
}
LONG = " ".join(map(str, range(400)))
"""A text of which nothing may be missing or come twice."""
LOADS = 8
"""While it comes."""


@pytest.fixture(params=TRANSPORTS)
def connect(request: pytest.FixtureRequest) -> Any:
    return TRANSPORTS[request.param]


def conversation(client: AcpClient) -> list[tuple[str, str]]:
    """What was said, chunks put together, and how each tool call ended."""
    said: list[tuple[str, str]] = []
    for update in client.updates():
        kind = update["sessionUpdate"]
        if kind.endswith("_chunk"):
            before = said.pop()[1] if said and said[-1][0] == kind else ""
            said.append((kind, before + update["content"]["text"]))
        elif kind.startswith("tool_call") and update.get("status") in ("completed", "failed"):
            said.append((update["toolCallId"], update["status"]))
        elif kind == "plan":
            said.append((kind, str(update["entries"])))
    return said


async def test_a_load_tells_what_was_seen_live(scripted: Scripted, connect: Any) -> None:
    todos = [{"content": "do it", "status": "in_progress"}]
    async with over_websocket(scripted.endpoint) as viewer:
        await viewer.new()
        thought = [thinking("hm"), text("I look"), bash("echo hi"), bash("exit 3")]
        scripted.prompt(Reply(thought), Reply([tool_use("todo_write", {"todos": todos})]), FINE)
        scripted.completes()
        await viewer.until(lambda _: viewer.texts() == "I lookfinefine", "all of it")
        live = conversation(viewer)
    async with connect(scripted.endpoint) as client:
        await client.load()
        assert conversation(client) == live
        (shown,) = [
            u for u in client.updates("tool_call") if u["rawInput"] == {"command": "echo hi"}
        ]
        assert shown["kind"] == "execute" and shown["content"][0]["content"]["text"].startswith(
            "hi"
        )
        loaded = len(client.seen)
        assert "result" in client.seen[loaded - 1]
        scripted.answers.append(FINE)
        await client.prompt()
        new = [m["params"]["update"] for m in client.seen[loaded:] if "params" in m]
        assert [u for u in new if u["sessionUpdate"] == "user_message_chunk"] == []
        said = [u["content"]["text"] for u in new if u["sessionUpdate"] == "agent_message_chunk"]
        assert "".join(said) == "fine"


async def test_a_resume_replays_nothing(scripted: Scripted, connect: Any) -> None:
    scripted.completes()
    async with connect(scripted.endpoint) as client:
        await client.resume()
        assert conversation(client) == []
        scripted.answers.append(FINE)
        assert await client.prompt() == "end_turn"
        assert client.texts() == "fine"


async def test_nothing_is_lost_or_repeated_for_those_who_load_while_the_model_speaks(
    scripted: Scripted, connect: Any
) -> None:
    scripted.start(
        Reply([text("first"), bash("true")]), Reply([text(LONG)], tps=400), prompt="count"
    )
    scripted.was_asked(2)

    async def load_once() -> tuple[list[tuple[str, str]], int]:
        async with connect(scripted.endpoint) as client:
            await client.load()
            loaded = len(client.texts())
            await client.until(lambda _: client.texts().endswith(LONG[-20:]), "the end")
            return conversation(client), loaded

    async with over_websocket(scripted.endpoint) as watching, asyncio.TaskGroup() as group:
        await watching.resume()
        loads: list[asyncio.Task[tuple[list[tuple[str, str]], int]]] = []
        for part in range(LOADS):
            heard = len(LONG) * part // LOADS
            await watching.until(lambda _, n=heard: len(watching.texts()) >= n, "some of it")
            loads.append(group.create_task(load_once()))
    seen = [load.result() for load in loads]
    assert len({loaded for _, loaded in seen}) > 1  # the seam was at several places
    for said, _ in seen:
        assert said[0] == ("user_message_chunk", "count")
        assert said[1] == ("agent_message_chunk", "first")
        assert said[2][1] == "completed"
        assert said[3:] == [("agent_message_chunk", LONG)]


async def test_a_tool_that_runs_is_told_once(scripted: Scripted, work: Path, connect: Any) -> None:
    run_id = scripted.start(Reply([bash("until [ -e go ]; do sleep 0.01; done")]), FINE)
    async with connect(scripted.endpoint) as client:
        async with over_websocket(scripted.endpoint) as first:
            await first.load()
            await first.until(lambda _: first.updates("tool_call"), "the call")
        await client.load()
        (work / "go").touch()
        await client.until(lambda _: client.texts() == "fine", "the end")
        assert len(client.updates("tool_call")) == 1
        assert [status for _, status in conversation(client)[1:-1]] == ["completed"]
    assert scripted.ended(run_id)["status"] == "completed"


async def test_a_question_that_waits_is_asked_behind_the_answer_to_a_load(
    daemon: Daemon, work: Path, connect: Any
) -> None:
    with scripted_session(daemon, work, mode="ask") as scripted:
        run_id = scripted.start(Reply([bash("touch made")]), FINE)
        asked(scripted.endpoint)
        async with connect(scripted.endpoint) as client:
            await client.load()
            question = await client.question()
            answered = client.position(lambda m: "modes" in m.get("result", {}))
            assert client.seen.index(question) > answered
            await client.choose(question, "allow_once")
            await client.until(lambda _: client.texts() == "fine", "the end")
        assert scripted.ended(run_id)["status"] == "completed"


async def test_a_conversation_outlives_the_worker_it_was_held_in(
    scripted: Scripted, connect: Any
) -> None:
    scripted.prompt(Reply([text("before")]))
    scripted.crash()
    scripted.prompt(Reply([text("after")]))
    async with connect(scripted.endpoint) as client:
        await client.load()
        assert [said for _, said in conversation(client)] == ["go", "before", "go", "after"]


async def test_a_long_conversation_is_told_whole_and_in_order(scripted: Scripted) -> None:
    turns = REPLAY_STEP // 3  # each is four records
    calls = [Reply([text(f"{n} "), bash(f"echo {n}")]) for n in range(turns)]
    scripted.prompt(*calls, FINE)
    async with over_websocket(scripted.endpoint) as client:
        await client.load()
        assert client.texts().split() == [*map(str, range(turns)), "fine"]
        assert len(client.updates("tool_call")) == turns


async def test_a_ring_that_lost_the_beginning_says_so_and_the_transcript_has_it(
    daemon: Daemon, work: Path
) -> None:
    with scripted_session(daemon, work, ring_bytes=64 * 1024) as scripted:
        long = "word " * 3_000
        scripted.prompt(Reply([text(long)]))
        run_id = scripted.start(Reply([bash("until [ -e go ]; do echo; sleep 0.1; done")]), FINE)
        async with over_websocket(scripted.endpoint) as client:
            await client.load()
            (work / "go").touch()
            assert scripted.ended(run_id)["status"] == "completed"
            await client.until(lambda _: client.texts().endswith("fine"), "the end")
            assert client.texts() == long + "fine"
