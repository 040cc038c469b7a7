"""The client of acp-sdk, the Agent Communication Protocol's own, over both sockets of a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon
from tests.support.processes import eventually
from tests.support.stdio_agent import StdioAgent

Json = dict[str, Any]
Connect = Callable[[], StdioAgent]
TO_US = {"agent": "sidecar"}


@pytest.fixture(params=["tcp", "unix"])
def connect(
    request: pytest.FixtureRequest,
    sdks: Callable[[str], StdioAgent],
    daemon: Daemon,
    work: Path,
) -> Connect:
    """Makes clients of one session, one after the other."""
    tcp = request.param == "tcp"
    where = daemon.create(work, mode="ask", tcp=tcp)["endpoint"]
    bearer = {"Authorization": f"Bearer {where['token']}"}
    over_tcp = {"url": where["url"], "headers": bearer}
    place = over_tcp if tcp else {"url": "http://localhost", "socket": where["socket"]}

    def connect() -> StdioAgent:
        client = sdks("acp-sdk")
        client.call("connect", **place)
        return client

    return connect


@pytest.fixture
def client(connect: Connect) -> StdioAgent:
    return connect()


def text(run: Json) -> str:
    parts = [part for message in run["output"] for part in message["parts"]]
    return "".join(part["content"] for part in parts if part["content_type"] == "text/plain")


def answer(choice: str) -> Json:
    message = {"role": "user", "parts": [{"content": choice}]}
    return {"type": "message", "message": message}


def comes_to(client: StdioAgent, run_id: str, status: str) -> None:
    def is_there() -> bool:
        return client.call("run_status", run_id=run_id)["status"] == status

    eventually(is_there, f"the run is {status}")


def test_a_prompt_is_answered_at_once_and_in_pieces(client: StdioAgent) -> None:
    client.call("ping")
    assert [agent["name"] for agent in client.call("agents")] == ["sidecar"]
    run = client.call("run_sync", input="run `echo $((6 * 7))`", **TO_US)
    assert (run["status"], "42" in text(run)) == ("completed", True)
    events = client.call("run_stream", input="run `echo $((6 * 7))`", **TO_US)
    assert events[-1]["type"] == "run.completed"
    pieces = [event["part"]["content"] for event in events if event["type"] == "message.part"]
    assert len(pieces) > 2
    assert text(events[-1]["run"]) == "".join(pieces)


def test_a_tool_waits_for_a_permission(client: StdioAgent, work: Path) -> None:
    for choice, is_done in (("reject_once", False), ("allow_once", True)):
        run = client.call("run_sync", input="run `touch made`", **TO_US)
        assert run["status"] == "awaiting"
        run = client.call("run_resume_sync", run_id=run["run_id"], await_resume=answer(choice))
        assert run["status"] == "completed"
        assert (work / "made").exists() is is_done


def test_a_run_is_cancelled_and_its_events_are_kept(client: StdioAgent, work: Path) -> None:
    run_id = client.call("run_async", input="run `touch up; sleep 600`", **TO_US)["run_id"]
    comes_to(client, run_id, "awaiting")
    client.call("run_resume_async", run_id=run_id, await_resume=answer("allow_once"))
    eventually(lambda: (work / "up").exists(), "the command runs")
    client.call("run_cancel", run_id=run_id)
    comes_to(client, run_id, "cancelled")
    types = [event["type"] for event in client.call("run_events", run_id=run_id)]
    assert (types[0], types[-1]) == ("run.created", "run.cancelled")


def test_a_session_has_one_id_and_one_conversation(client: StdioAgent) -> None:
    client.call("session")
    runs = [client.call("run_sync", input="hi", **TO_US) for _ in range(2)]
    assert {run["status"] for run in runs} == {"completed"}
    assert client.call("refresh_session")["id"] == runs[0]["session_id"] == runs[1]["session_id"]


def test_what_is_not_there_is_refused_in_words_of_the_protocol(client: StdioAgent) -> None:
    assert client.refused("run_sync", input="hi", agent="nobody")["code"] == "not_found"
    nowhere = "00000000-0000-4000-8000-000000000000"
    assert client.refused("run_status", run_id=nowhere)["code"] == "not_found"
    assert client.call("run_sync", input="hi", **TO_US)["status"] == "completed"


def test_a_client_that_dies_in_the_middle_of_a_run_finds_it_again(
    connect: Connect, work: Path
) -> None:
    client = connect()
    run_id = client.call("run_async", input="run `touch made`", **TO_US)["run_id"]
    client.process.kill()
    client.process.wait()
    client = connect()
    comes_to(client, run_id, "awaiting")
    client.call("run_resume_sync", run_id=run_id, await_resume=answer("allow_once"))
    assert (work / "made").exists()


def test_who_has_not_the_token_is_told_so(
    daemon: Daemon, work: Path, sdks: Callable[[str], StdioAgent]
) -> None:
    client = sdks("acp-sdk")
    url = daemon.create(work, tcp=True)["endpoint"]["url"]
    client.call("connect", url=url, headers={"Authorization": "Bearer of-another"})
    assert "token" in client.refused("ping")["message"]
