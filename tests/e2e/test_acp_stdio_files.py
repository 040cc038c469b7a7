"""An editor's files through `sidecarctl acp`: each answer reaches the worker that asked."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_worker.demo_model import Answer, Received, Reply, text
from tests.support.acp_editor import FILES, GONE, READ, WRITE
from tests.support.cli import Cli
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint
from tests.support.model_server import model_server
from tests.support.processes import eventually
from tests.support.questions import read, text_of, write
from tests.support.stdio_agent import Json, StdioAgent, stdio_agent


def obey(received: Received) -> Answer:
    """A model that reads or writes the file it is told, and then says what came of it."""
    blocks = received.body["messages"][-1]["content"]
    if blocks[-1]["type"] == "tool_result":
        return Reply([text(text_of(blocks[-1]))])
    verb, name = blocks[-1]["text"].split()
    return Reply([read(name) if verb == "read" else write(name)])


@pytest.fixture
def agent(cli: Cli) -> Iterator[StdioAgent]:
    with model_server(obey) as server, stdio_agent(cli, "--mode", "bypass", **server.env) as agent:
        agent.initialize(**FILES)
        yield agent


def asked(agent: StdioAgent, method: str) -> Json:
    return agent.until(lambda m: m.get("method") == method)


def end(agent: StdioAgent, prompt: int, session_id: str) -> str:
    """What was said since the prompt's beginning, by that session."""
    agent.answered(prompt)
    said = [m["params"] for m in agent.heard if m.get("method") == "session/update"]
    updates = [p["update"] for p in said if p["sessionId"] == session_id]
    chunks = [u["content"]["text"] for u in updates if u["sessionUpdate"] == "agent_message_chunk"]
    return "".join(chunks)


def test_two_sessions_ask_for_files_at_once(agent: StdioAgent, work: Path) -> None:
    (work / "f").write_text("saved")
    one, two = agent.new(work), agent.new(work)
    prompts = {one: agent.ask_prompt(one, "read f"), two: agent.ask_prompt(two, "read f")}
    requests = [asked(agent, READ), asked(agent, READ)]
    assert requests[0]["id"] != requests[1]["id"]
    for request in reversed(requests):
        of = "one" if request["params"]["sessionId"] == one else "two"
        agent.answer(request, {"content": f"of {of}"})
    ended = {m["id"] for m in (agent.until(lambda m: "method" not in m) for _ in prompts)}
    assert ended == set(prompts.values())
    for session_id, of in ((one, "one"), (two, "two")):
        prompt = agent.ask_prompt(session_id, "write new")
        agent.send({"id": asked(agent, READ)["id"], **GONE})
        agent.answer(asked(agent, WRITE), {})
        said = end(agent, prompt, session_id)
        assert f"of {of}" in said and "created new" in said
    assert not (work / "new").exists()


def test_another_worker_asks_the_same_editor(agent: StdioAgent, daemon: Daemon, work: Path) -> None:
    (work / "f").write_text("saved")
    session_id = agent.new(work)
    prompt = agent.ask_prompt(session_id, "read f")
    request = asked(agent, READ)
    endpoint = Endpoint(daemon.call("session.status", session_id=session_id))
    pid = endpoint.get("/healthz")[1]["pid"]
    os.kill(pid, signal.SIGKILL)
    assert agent.answered(prompt)["error"]["code"] == -32603
    withdrawn = agent.until(lambda m: m.get("method") == "$/cancel_request")
    assert withdrawn["params"] == {"requestId": request["id"]}
    agent.answer(request, {"content": "too late"})
    eventually(lambda: endpoint.get("/healthz")[1]["state"] == "idle", "the run has gone on")
    prompt = agent.ask_prompt(session_id, "read f")
    agent.answer(asked(agent, READ), {"content": "unsaved"})
    assert "unsaved" in end(agent, prompt, session_id)
