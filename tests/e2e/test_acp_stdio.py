"""`sidecarctl acp` as an editor sees it: one stdio connection, many sessions, real workers."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_worker.demo_model import Answer, Received, Reply, text
from tests.support.cli import Cli
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint
from tests.support.model_server import model_server
from tests.support.processes import eventually
from tests.support.scripted import FINE, bash
from tests.support.stdio_agent import Json, StdioAgent, stdio_agent, texts

NOWHERE = "00000000-0000-4000-8000-000000000000"


def obey(received: Received) -> Answer:
    """A model that runs what it is told to in the form `run: COMMAND`, and else repeats it."""
    blocks = received.body["messages"][-1]["content"]
    if blocks[-1]["type"] == "tool_result":
        return FINE
    said = blocks[-1]["text"]
    command = said.removeprefix("run: ")
    return Reply([text(f"you said {said[:100]}") if command == said else bash(command)])


@pytest.fixture(scope="module")
def model() -> Iterator[dict[str, str]]:
    """The environment of an editor whose sessions talk to `obey`."""
    with model_server(obey) as server:
        yield server.env


@pytest.fixture
def agent(cli: Cli, model: dict[str, str]) -> Iterator[StdioAgent]:
    with stdio_agent(cli, **model) as agent:
        agent.initialize()
        yield agent


def info(daemon: Daemon, session_id: str) -> Json:
    return daemon.call("session.status", session_id=session_id)


def asks(message: Json) -> bool:
    return message.get("method") == "session/request_permission"


def kind(message: Json) -> str | None:
    """Of an update."""
    return message.get("params", {}).get("update", {}).get("sessionUpdate")


def directory(work: Path, name: str) -> Path:
    path = work / name
    path.mkdir()
    return path


# --- before there is a session ---------------------------------------------------------------


def test_initialize_needs_no_daemon_and_the_first_session_says_that_there_is_none(
    home: Path, work: Path
) -> None:
    with stdio_agent(Cli(home, work, ("--no-start",))) as agent:
        assert agent.initialize()["protocolVersion"] == 1
        assert "no daemon answers" in agent.refused("session/list")["message"]
        code, said = agent.left()
    assert code == 6
    assert said.startswith("sidecarctl: no daemon answers")


def test_the_first_session_starts_a_daemon(home: Path, work: Path) -> None:
    with stdio_agent(Cli(home, work)) as agent:
        assert agent.call("session/list") == {"sessions": []}
    Cli(home, work).ok("daemon", "stop")


def test_it_promises_what_a_worker_can_do_and_what_only_a_daemon_can(
    agent: StdioAgent, daemon: Daemon, work: Path
) -> None:
    ours = agent.initialize()
    initialize = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": 1},
    }
    theirs = daemon.session(work).post("/acp", initialize)[1]["result"]
    assert ours["agentCapabilities"]["sessionCapabilities"].pop("delete") == {}
    assert ours["agentCapabilities"].pop("mcpCapabilities") == {"http": True, "sse": False}
    del theirs["agentCapabilities"]["mcpCapabilities"]  # a session has those it was made with
    assert ours == theirs


@pytest.mark.parametrize(
    ("params", "names"),
    [
        ({"mcpServers": [{"command": "git-mcp", "args": []}]}, "its name"),
        ({"cwd": "relative"}, "absolute"),
        ({"cwd": "/there/is/no/such/place"}, "not a directory"),
        ({"cwd": None}, "absolute"),
    ],
)
def test_a_session_that_cannot_be_is_refused_by_name(
    agent: StdioAgent, work: Path, params: Json, names: str
) -> None:
    error = agent.refused("session/new", **{"cwd": str(work), "mcpServers": []} | params)
    assert error["code"] == -32602
    assert names in error["message"]


def test_what_is_no_message_is_answered_and_harms_nobody(agent: StdioAgent, work: Path) -> None:
    session_id = agent.new(work)
    agent.send_raw(b'garbage\n[]\n\xff\n{"id": 1.5, "method": "x"}\n')
    assert [agent.until(lambda m: "error" in m)["error"]["code"] for _ in range(4)] == [
        -32700,
        -32600,
        -32700,
        -32600,
    ]
    assert agent.refused("_mine/method")["code"] == -32601
    assert agent.refused("_mine/method", sessionId=session_id)["code"] == -32601
    agent.tell("_mine/notification", sessionId=session_id)
    agent.answer({"id": 4711}, {"nobody": "asked"})
    assert agent.prompt(session_id, "hi") == ("end_turn", "you said hi")


# --- sessions --------------------------------------------------------------------------------


def test_a_prompt_is_answered_behind_what_the_agent_says(agent: StdioAgent, work: Path) -> None:
    asked = agent.ask("session/new", cwd=str(work), mcpServers=[])
    answer = agent.answered(asked)
    assert not any(map(kind, agent.heard)), "no update comes before the session is known"
    assert answer["result"]["modes"]["currentModeId"] == "bypass"
    session_id = answer["result"]["sessionId"]
    assert agent.prompt(session_id, "hi") == ("end_turn", "you said hi")
    assert agent.prompt(session_id, "run: touch made") == ("end_turn", "fine")
    assert (work / "made").exists()
    assert {"tool_call", "tool_call_update"} <= set(map(kind, agent.heard))


def test_a_prompt_of_megabytes_gets_through(agent: StdioAgent, work: Path) -> None:
    long = "a" * (2 << 20)
    assert agent.prompt(agent.new(work), long) == ("end_turn", f"you said {long[:100]}")


def test_mode_and_model_of_new_sessions_can_be_chosen(
    cli: Cli, daemon: Daemon, model: dict[str, str], work: Path
) -> None:
    with stdio_agent(cli, "--mode", "plan", "--model", "some-model", **model) as agent:
        made = info(daemon, agent.new(work))
    assert (made["mode"], made["model"]) == ("plan", "some-model")


def test_two_sessions_ask_at_once_and_each_gets_its_own_answer(
    cli: Cli, model: dict[str, str], work: Path
) -> None:
    with stdio_agent(cli, "--mode", "ask", **model) as agent:
        agent.initialize()
        places = [directory(work, name) for name in ("one", "two")]
        ids = [agent.new(place) for place in places]
        prompts = [agent.ask_prompt(session_id, "run: touch made") for session_id in ids]
        questions = [agent.until(asks), agent.until(asks)]
        assert len({question["id"] for question in questions}) == 2
        for question in reversed(questions):
            choice = "allow_once" if question["params"]["sessionId"] == ids[0] else "reject_once"
            agent.answer(question, {"outcome": {"outcome": "selected", "optionId": choice}})
        for _ in prompts:
            agent.until(lambda m: m.get("id") in prompts and "result" in m)
        assert [(place / "made").exists() for place in places] == [True, False]


def test_a_question_that_is_answered_elsewhere_is_withdrawn_under_its_number(
    cli: Cli, daemon: Daemon, model: dict[str, str], work: Path
) -> None:
    with stdio_agent(cli, "--mode", "ask", **model) as agent:
        agent.initialize()
        session_id = agent.new(work)
        prompt = agent.ask_prompt(session_id, "run: touch made")
        question = agent.until(asks)
        endpoint = Endpoint(info(daemon, session_id))
        (pending,) = endpoint.get(f"/sessions/{session_id}/permissions")[1]["pending"]
        path = f"/sessions/{session_id}/permissions/{pending['request_id']}"
        assert endpoint.post(path, {"option_id": "allow_once", "reason": ""})[0] == 200
        withdrawn = agent.until(lambda m: m.get("method") == "$/cancel_request")
        assert withdrawn["params"]["requestId"] == question["id"]
        agent.answer(question, {"outcome": {"outcome": "cancelled"}})
        assert agent.answered(prompt)["result"]["stopReason"] == "end_turn"


@pytest.mark.parametrize("how", ["session/cancel", "$/cancel_request"])
def test_a_cancelled_prompt_is_answered_as_cancelled(
    agent: StdioAgent, work: Path, how: str
) -> None:
    session_id = agent.new(work)
    prompt = agent.ask_prompt(session_id, "run: touch up; sleep 600")
    eventually(lambda: (work / "up").exists(), "the command runs")
    agent.tell(how, sessionId=session_id, requestId=prompt)
    assert agent.answered(prompt)["result"]["stopReason"] == "cancelled"
    assert agent.prompt(session_id, "hi") == ("end_turn", "you said hi")


def test_mode_and_model_are_set_in_the_worker(
    agent: StdioAgent, daemon: Daemon, work: Path
) -> None:
    session_id = agent.new(work)
    assert agent.call("session/set_mode", sessionId=session_id, modeId="plan") == {}
    eventually(lambda: info(daemon, session_id)["mode"] == "plan", "the daemon knows")


# --- sessions that are there already -----------------------------------------------------------


def test_a_session_is_listed_loaded_with_its_history_and_resumed_without(
    cli: Cli, agent: StdioAgent, model: dict[str, str], work: Path
) -> None:
    session_id = agent.new(work)
    agent.prompt(session_id, "hello")
    for method, replayed in (("session/load", ["you said hello"]), ("session/resume", [])):
        with stdio_agent(cli, **model) as other:
            other.initialize()
            assert session_id in [s["sessionId"] for s in other.call("session/list")["sessions"]]
            other.call(method, sessionId=session_id, cwd=str(work), mcpServers=[])
            assert list(texts(other.heard, session_id)) == replayed
            assert other.prompt(session_id, "and I?") == ("end_turn", "you said and I?")


def test_the_list_can_be_of_one_directory(agent: StdioAgent, work: Path) -> None:
    places = [directory(work, name) for name in ("one", "two")]
    ids = [agent.new(place) for place in places]
    listed = agent.call("session/list", cwd=str(places[1]))
    assert [(s["sessionId"], s["cwd"]) for s in listed["sessions"]] == [(ids[1], str(places[1]))]
    assert {s["sessionId"] for s in agent.call("session/list")["sessions"]} >= set(ids)


def test_a_session_that_has_ended_comes_up_again_when_it_is_loaded(
    agent: StdioAgent, daemon: Daemon, work: Path
) -> None:
    session_id = agent.new(work)
    agent.prompt(session_id, "hello")
    daemon.call("session.destroy", session_id=session_id)
    before = len(agent.heard)
    agent.call("session/load", sessionId=session_id, cwd=str(work), mcpServers=[])
    assert list(texts(agent.heard[before:], session_id)) == ["you said hello"]
    assert agent.prompt(session_id, "more") == ("end_turn", "you said more")
    assert info(daemon, session_id)["state"] == "idle"


def test_a_closed_session_ends_and_keeps_its_transcript_a_deleted_one_goes(
    agent: StdioAgent, daemon: Daemon, work: Path
) -> None:
    session_id = agent.new(work)
    prompt = agent.ask_prompt(session_id, "run: touch up; sleep 600")
    eventually(lambda: (work / "up").exists(), "the command runs")
    close = agent.ask("session/close", sessionId=session_id)
    assert agent.answered(prompt)["result"]["stopReason"] == "cancelled"
    assert agent.answered(close)["result"] == {}
    assert info(daemon, session_id)["state"] == "exited"
    assert agent.refused("session/prompt", sessionId=session_id, prompt=[])["code"] == -32002
    assert session_id in [s["sessionId"] for s in agent.call("session/list")["sessions"]]
    assert agent.call("session/delete", sessionId=session_id) == {}
    assert session_id not in [s["sessionId"] for s in agent.call("session/list")["sessions"]]
    assert agent.refused("session/close", sessionId=session_id)["code"] == -32002


def test_sessions_are_named_by_their_whole_id_only(
    agent: StdioAgent, daemon: Daemon, work: Path
) -> None:
    made = daemon.create(work, name="mine")
    for method in ("session/load", "session/resume", "session/close", "session/delete"):
        for reference in (NOWHERE, "mine", made["session_id"][:13]):
            error = agent.refused(method, sessionId=reference, cwd=str(work), mcpServers=[])
            assert error["code"] == -32002
        assert agent.refused(method, sessionId=7)["code"] == -32602
    assert agent.refused("session/prompt", sessionId=made["session_id"])["code"] == -32002
    assert info(daemon, made["session_id"])["state"] == "idle"


def test_a_pinned_session_is_what_a_new_one_is(
    cli: Cli, daemon: Daemon, work: Path, model: dict[str, str]
) -> None:
    made = daemon.create(work, name="mine", env=model)
    for _ in range(2):
        with stdio_agent(cli, "--session", "mine") as agent:
            agent.initialize()
            assert agent.new(work) == made["session_id"]
            assert agent.prompt(made["session_id"], "hi") == ("end_turn", "you said hi")


# --- what goes wrong -----------------------------------------------------------------------------


def test_a_worker_that_dies_fails_its_own_prompt_and_is_there_for_the_next(
    agent: StdioAgent, daemon: Daemon, work: Path
) -> None:
    doomed, other = agent.new(work), agent.new(directory(work, "other"))
    prompt = agent.ask_prompt(doomed, "run: touch up; sleep 600")
    eventually(lambda: (work / "up").exists(), "the command runs")
    pid = info(daemon, doomed)["pid"]
    os.kill(pid, signal.SIGKILL)
    assert agent.answered(prompt)["error"]["code"] == -32603
    assert agent.prompt(other, "hi") == ("end_turn", "you said hi")
    stop_reason, said = agent.prompt(doomed, "again")
    assert stop_reason == "end_turn"
    assert said.endswith("you said again"), "behind what is left of the run that goes on"
    assert info(daemon, doomed)["pid"] != pid


def test_a_session_that_was_ended_elsewhere_comes_up_for_its_next_prompt(
    agent: StdioAgent, daemon: Daemon, work: Path
) -> None:
    session_id = agent.new(work)
    daemon.call("session.destroy", session_id=session_id)
    assert agent.prompt(session_id, "hi") == ("end_turn", "you said hi")
    daemon.call("session.destroy", session_id=session_id, purge=True)
    for _ in range(2):
        assert agent.refused("session/prompt", sessionId=session_id)["code"] == -32002


def test_a_daemon_that_ends_and_starts_is_not_noticed(
    own_daemon: Daemon, model: dict[str, str], work: Path
) -> None:
    with stdio_agent(Cli(own_daemon.home, work, ("--no-start",)), **model) as agent:
        agent.initialize()
        session_id = agent.new(work)
        own_daemon.kill()
        assert agent.prompt(session_id, "hi") == ("end_turn", "you said hi")
        assert agent.refused("session/list")["code"] == -32603
        assert agent.prompt(session_id, "ho") == ("end_turn", "you said ho")
        own_daemon.start()
        assert session_id in [s["sessionId"] for s in agent.call("session/list")["sessions"]]


@pytest.mark.parametrize("how", ["end of stdin", "SIGTERM"])
def test_an_editor_that_leaves_leaves_its_sessions_at_work(
    agent: StdioAgent, daemon: Daemon, work: Path, how: str
) -> None:
    session_id = agent.new(work)
    agent.ask_prompt(session_id, "run: touch up; until [ -e go ]; do sleep 0.02; done; touch done")
    eventually(lambda: (work / "up").exists(), "the command runs")
    if how == "SIGTERM":
        agent.process.terminate()
    else:
        agent.close_stdin()
    assert agent.left() == ({"SIGTERM": 128 + signal.SIGTERM}.get(how, 0), "")
    (work / "go").touch()
    eventually(lambda: (work / "done").exists(), "the run goes on")
    eventually(lambda: info(daemon, session_id)["state"] == "idle", "to its end")


def test_what_was_asked_before_the_end_of_stdin_is_answered(cli: Cli, work: Path) -> None:
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}},
        {"jsonrpc": "2.0", "id": 2, "method": "session/list", "params": {}},
    ]
    done = cli("acp", input="".join(json.dumps(line) + "\n" for line in lines))
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2]
