"""The asyncio library against a real daemon and real workers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from client.api import Sidecar
from client.connection import Connection
from client.errors import ConnectionLost, EndpointRefusal, Unreachable
from client.session import Session
from session_worker.demo_model import Reply, text, tool_use
from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.events import Envelope
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint
from tests.support.model_server import model_server
from tests.support.processes import eventually

DEMO = {"env": {"PATH": "/usr/local/bin:/usr/bin:/bin"}}
"""No key: the demo model."""


@pytest.fixture
async def sidecar(daemon: Daemon) -> AsyncIterator[Sidecar]:
    async with Sidecar.connect(daemon.socket) as sidecar:
        yield sidecar


async def test_a_prompt_gives_its_result(sidecar: Sidecar, work: Path) -> None:
    session = await sidecar.create(cwd=work, name="s", **DEMO)
    result = await session.prompt("run `echo hello`")
    assert result["stop_reason"] == "final_answer"
    assert "hello" in result["final_text"]
    assert [info["session_id"] for info in await sidecar.list()] == [session.id]
    assert (await sidecar.session("s")).id == session.id
    assert (await sidecar.rename(session.id, "t"))["name"] == "t"
    assert "## run `echo hello`" in await session.transcript("markdown")
    assert (await session.destroy())["state"] == "exited"
    with pytest.raises(SidecarError) as refused:
        await sidecar.session("nobody")
    assert refused.value.code == "session_not_found"


async def test_the_environment_of_the_caller_decides_the_model(
    sidecar: Sidecar, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_ID", "model-of-the-caller")
    session = await sidecar.create(cwd=work)
    assert session.info["model"] == "model-of-the-caller"


async def test_a_run_streams_its_events_in_order(sidecar: Sidecar, work: Path) -> None:
    session = await sidecar.create(cwd=work, **DEMO)
    await session.prompt("hello")
    events = [event async for event in session.stream("run `echo one`")]
    assert len({event["run_id"] for event in events}) == 1
    assert events[-1]["type"] == "run_finished"
    numbers = [event["seq"] for event in events]
    assert numbers == sorted(set(numbers))


async def test_runs_at_once_each_get_their_own_result(sidecar: Sidecar, work: Path) -> None:
    session = await sidecar.create(cwd=work, **DEMO)
    words = ["alpha", "beta", "gamma"]
    results = await asyncio.gather(*(session.prompt(f"run `echo {word}`") for word in words))
    for word, result in zip(words, results, strict=True):
        assert word in result["final_text"]


async def test_a_cancelled_run_is_a_result_not_an_error(sidecar: Sidecar, work: Path) -> None:
    session = await sidecar.create(cwd=work, **DEMO)
    result: dict[str, Any] = {}
    async for event in session.stream("run `sleep 600`"):
        if event["data"].get("status") == "in_progress":
            await session.cancel()
        result = event["data"]
    assert result["stop_reason"] == "cancelled"


async def test_a_stream_tells_of_retries_and_its_result_of_none(
    sidecar: Sidecar, work: Path
) -> None:
    session = await sidecar.create(cwd=work, **DEMO)
    events = [event async for event in session.stream("!cut 1 hello")]
    assert [e["data"]["discard"] for e in events if e["type"] == "retry"] == [True]
    assert events[-1]["data"]["stop_reason"] == "final_answer"
    calls = (await session.context())["calls"]
    assert [call["stop_reason"] for call in calls] == [None, "end_turn"]


async def test_a_budget_is_asked_for_at_the_creation_and_ends_a_run(
    sidecar: Sidecar, work: Path
) -> None:
    session = await sidecar.create(cwd=work, limits={"tokens": 10}, **DEMO)
    assert (await session.prompt("run `echo hello`"))["stop_reason"] == "budget"
    with pytest.raises(SidecarError) as refused:
        await sidecar.create(cwd=work, limits={"cost_usd": float("inf")}, **DEMO)
    assert refused.value.code == "usage"


async def test_a_conversation_is_compacted_by_hand(sidecar: Sidecar, work: Path) -> None:
    session = await sidecar.create(cwd=work, **DEMO)
    assert (await session.compact())["result"]["error"]["type"] == "compaction_failed"
    for prompt in ("!big 20k", "hello", "hello"):
        await session.prompt(prompt)
    done = await session.compact("greetings")
    assert done["result"]["stop_reason"] == "final_answer"
    assert (await session.context())["calls"][-1]["run_id"] == done["run_id"]


async def test_a_steering_prompt_follows_the_run_it_goes_along_with(
    sidecar: Sidecar, work: Path
) -> None:
    wait = tool_use("bash", {"command": "touch up; until [ -e go ]; do sleep 0.05; done"})
    with model_server([Reply([wait]), Reply([text("As you like.")]), Reply([text("Hi.")])]) as m:
        env = {**DEMO["env"], "ANTHROPIC_BASE_URL": m.base_url, "ANTHROPIC_API_KEY": "k"}
        session = await sidecar.create(cwd=work, env=env)
        host = asyncio.ensure_future(session.prompt("go"))
        await asyncio.to_thread(eventually, (work / "up").exists, "the tool runs")
        events: list[Envelope] = []

        async def steer() -> None:
            async for event in session.stream("use tabs", steer=True):
                events.append(event)

        steering = asyncio.ensure_future(steer())
        endpoint, path = Endpoint({**session.info}), f"/sessions/{session.id}/transcript"
        await asyncio.to_thread(
            eventually, lambda: "use tabs" in str(endpoint.get(path)), "it is accepted"
        )
        (work / "go").touch()
        await steering
        result = await host
        assert [e["type"] for e in events if e["type"].startswith("run_")] == [
            "run_started",
            "run_finished",
        ]
        assert len({event["run_id"] for event in events}) == 2
        assert events[-1]["data"] == result
        assert result["final_text"] == "As you like."
        alone = await session.prompt("hello", steer=True)
        assert alone["final_text"] == "Hi.", "without a run to steer it is one"


async def test_statuses_are_of_all_that_live_or_of_all(sidecar: Sidecar, work: Path) -> None:
    first, second = [await sidecar.create(cwd=work, **DEMO) for _ in range(2)]
    await first.destroy()
    assert [status["session_id"] for status in await sidecar.statuses()] == [second.id]
    everyone = await sidecar.statuses(all=True)
    assert [status["session_id"] for status in everyone] == [second.id, first.id]
    assert all(status["usage"]["context_tokens"] == 0 for status in everyone)


async def test_events_come_back_with_their_cursor_after_a_dropped_stream(
    sidecar: Sidecar, work: Path, tmp_path: Path
) -> None:
    session = await sidecar.create(cwd=work, **DEMO)
    await session.prompt("!big 20k")
    last = (await session.status())["ring"]["last_seq"]
    async with dropping_proxy(Path(session.info["endpoint"]["socket"]), after_bytes=20_000) as path:
        session.info["endpoint"]["socket"] = str(path)
        seen = await events_until(session, last)
    assert seen == list(range(1, last + 1))


async def test_what_fell_out_of_the_ring_is_told_as_a_gap(sidecar: Sidecar, work: Path) -> None:
    session = await sidecar.create(cwd=work, ring_bytes=bounds.RING_MIN_BYTES, **DEMO)
    await session.prompt("!big 200k")
    ring = (await session.status())["ring"]
    assert ring["dropped_events"] > 0
    async with contextlib.aclosing(session.events()) as events:
        first, second = await anext(events), await anext(events)
    assert (first["type"], first["data"]["from"]) == ("gap", 1)
    assert first["seq"] == first["data"]["to"] == second["seq"] - 1
    recorded = [event async for event in session.recorded()]
    assert recorded[0]["type"] == "gap"
    assert recorded[-1]["seq"] == ring["last_seq"]


async def test_events_of_an_ended_session_end(sidecar: Sidecar, work: Path) -> None:
    session = await sidecar.create(cwd=work, **DEMO)
    await session.prompt("hello")

    async def numbers() -> list[int]:
        return [event["seq"] async for event in session.events()]

    following = asyncio.ensure_future(numbers())
    await session.destroy()
    seen = await asyncio.wait_for(following, bounds.SESSION_START_S)
    assert seen == list(range(1, len(seen) + 1))
    assert await numbers() == seen, "also for whoever asks afterwards"


async def test_a_run_goes_on_while_the_daemon_dies(own_daemon: Daemon, work: Path) -> None:
    async with Sidecar.connect(own_daemon.socket) as sidecar:
        session = await sidecar.create(cwd=work, **DEMO)
        result: dict[str, Any] = {}
        async for event in session.stream("run `echo survived`"):
            if event["type"] == "run_started":
                own_daemon.kill()
            result = event["data"]
        assert "survived" in result["final_text"]
        with pytest.raises((ConnectionLost, Unreachable)):
            await sidecar.ping()
        own_daemon.start()
        await sidecar.ping()
        assert (await session.prompt("hello"))["stop_reason"] == "final_answer"


async def test_a_lost_connection_fails_what_is_under_way(own_daemon: Daemon, work: Path) -> None:
    async with Sidecar.connect(own_daemon.socket) as sidecar:
        session = await sidecar.create(cwd=work, **DEMO)
        after = (await session.status())["ring"]["last_seq"]
        wait = partial(sidecar.output, session.id, after=after, wait_s=60)
        answers = [asyncio.ensure_future(wait()) for _ in range(3)]
        await sidecar.ping()  # requests are read in order, so those before it are under way
        own_daemon.kill()
        for answer in await asyncio.gather(*answers, return_exceptions=True):
            assert isinstance(answer, ConnectionLost)


async def test_a_slow_answer_holds_up_no_other(sidecar: Sidecar, work: Path) -> None:
    session = await sidecar.create(cwd=work, **DEMO)
    last = (await session.status())["ring"]["last_seq"]
    slow = asyncio.ensure_future(sidecar.output(session.id, after=last, wait_s=60))
    await sidecar.ping()
    assert not slow.done()
    await session.prompt("hello")
    assert (await slow)["events"][0]["seq"] == last + 1


async def test_a_call_that_takes_too_long_is_given_up_and_its_answer_ignored(
    daemon: Daemon, work: Path
) -> None:
    session_id = daemon.create(work)["session_id"]
    connection = await Connection.open(daemon.socket)
    last = (await connection.call("session.status", {"session_id": session_id}))["ring"]["last_seq"]
    params = {"session_id": session_id, "after": last, "wait_s": 0.5}
    with pytest.raises(SidecarError) as late:
        await connection.call("session.output", params, timeout_s=0.05)
    assert late.value.code == "timed_out"
    assert (await connection.call("session.output", params))["events"] == []
    await connection.close()
    with pytest.raises(ConnectionLost):
        await connection.call("sidecar.ping")


async def test_the_daemon_pushes_events_and_changes(sidecar: Sidecar, work: Path) -> None:
    session = await sidecar.create(cwd=work, **DEMO)
    async with (
        contextlib.aclosing(sidecar.changes()) as changes,
        contextlib.aclosing(sidecar.subscribe(session.id)) as events,
    ):
        first_change = asyncio.ensure_future(anext(changes))
        assert (await anext(events))["seq"] == 1
        await session.prompt("hello")
        async for event in events:
            if event["type"] == "run_finished":
                break
        assert (await first_change)["session_id"] == session.id


async def test_a_refusal_of_the_endpoint_keeps_its_status(sidecar: Sidecar, work: Path) -> None:
    session = await sidecar.create(cwd=work, **DEMO)
    with pytest.raises(EndpointRefusal) as refused:
        await session.transcript("papyrus")
    assert (refused.value.status, refused.value.code) == (400, "invalid_input")


async def test_an_endpoint_that_is_gone_is_unreachable(sidecar: Sidecar, work: Path) -> None:
    session = await sidecar.create(cwd=work, **DEMO)
    await sidecar.destroy(session.id)
    with pytest.raises(Unreachable):
        await session.start("hello")


async def test_without_a_daemon_connecting_is_refused(home: Path) -> None:
    with pytest.raises(Unreachable):
        async with Sidecar.connect(home / "run" / "sidecar.sock"):
            pass


async def events_until(session: Session, last: int) -> list[int]:
    seen: list[int] = []
    async with contextlib.aclosing(session.events()) as events:
        async for event in events:
            seen.append(event["seq"])
            if event["seq"] == last:
                break
    return seen


@contextlib.asynccontextmanager
async def dropping_proxy(target: Path, after_bytes: int) -> AsyncIterator[Path]:
    """A socket in front of `target` that hangs up after so many bytes of the answer."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(target)
        up_writer.write(await reader.readuntil(b"\r\n\r\n"))
        writer.write(await up_reader.readexactly(after_bytes))
        await writer.drain()
        for end in (writer, up_writer):
            end.close()

    path = target.with_suffix(".proxy")
    async with await asyncio.start_unix_server(relay, path):
        yield path
    path.unlink()
