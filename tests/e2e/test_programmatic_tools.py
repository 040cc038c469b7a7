"""Programmatic tool calling over a real session: code at the API calls the session's tools."""

from __future__ import annotations

import base64
import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model import Reply, text, tool_use
from sidecar.protocol.bounds import CODE_CALL_S
from sidecar.protocol.ptc import PROFILES
from tests.support.acp_client import over_http, over_websocket
from tests.support.cli import Cli
from tests.support.conversations import image
from tests.support.daemon import Daemon
from tests.support.from_code import by_code, called, code, code_result, container, named
from tests.support.processes import eventually
from tests.support.questions import Ask, answer, asked, configure, pending, results, trusted
from tests.support.scripted import FINE, Scripted, bash, scripted_session

Json = dict[str, Any]
STUB = str(Path(__file__).parents[1] / "support" / "mcp_stub.py")
DATABASE = {"db": {"command": sys.executable, "args": ["-I", STUB]}}
WAITS = "touch up; until [ -e go ]; do sleep 0.02; done; rm go up; echo done"
OK = '{"decision": null, "context": "a hook says so"}'


def last(body: Json) -> list[Json]:
    """What the last message of a request says, without the marks of the cache."""
    return [
        {k: v for k, v in b.items() if k != "cache_control"}
        for b in body["messages"][-1]["content"]
    ]


def title(question: Json) -> str:
    return question["toolCall"]["title"]


def head(raw: bytes) -> bytes:
    """Of a request, tools and system prompt."""
    return raw[raw.index(b'"tools":') : raw.index(b'"messages":')]


def follows_the_documented_flow(scripted: Scripted, code_type: str, stop_reason: str) -> None:
    """The example of the specification, step by step."""
    query = tool_use("db__echo", {"text": "SELECT * FROM sales"})
    asks = Reply(
        [
            text("I'll query the data and analyze it."),
            code(),
            called({**query, "id": "toolu_def456"}, code_type=code_type),
        ],
        stop_reason,
        start=container("container_xyz789"),
    )
    again = Reply([called({**query, "id": "toolu_2"}, code_type=code_type)], stop_reason)
    ends = Reply([code_result(), text("It is 42.")], "end_turn")
    run = scripted.prompt(asks, again, ends)
    assert (run["result"]["turns"], run["result"]["tool_calls"]) == (3, 2)
    assert (run["result"]["stop_reason"], run["result"]["final_text"]) == (
        "final_answer",
        "It is 42.",
    )
    first, *answers = scripted.bodies
    offered, *tools = first["tools"]
    assert offered == {"type": code_type, "name": "code_execution"}
    assert {"bash", "db__echo"} < {tool["name"] for tool in tools}
    assert all(tool["allowed_callers"] == [code_type] for tool in tools)
    said = {"type": "tool_result", "content": "SELECT * FROM sales"}
    assert [last(body) for body in answers] == [
        [said | {"tool_use_id": "toolu_def456"}],
        [said | {"tool_use_id": "toolu_2"}],
    ]
    assert named(scripted) == [None, "container_xyz789", "container_xyz789"]
    assert not any("tool_choice" in body for body in scripted.bodies)
    scripted.completes()
    assert named(scripted)[-1] == "container_xyz789", (
        "files and variables are there in the next run"
    )


def test_the_documented_flow_in_both_readings_which_a_session_keeps(
    own_daemon: Daemon, work: Path
) -> None:
    """Also when the settings change, and when its worker is killed in the midst of a call."""
    with ExitStack() as stack:
        sessions: dict[str, Scripted] = {}
        for name in PROFILES:
            own_daemon.configure(f'ptc_profile = "{name}"\n')
            sessions[name] = stack.enter_context(
                scripted_session(
                    own_daemon, work, programmatic_tools=True, mcp_servers=DATABASE, name=name
                )
            )
            stop_reason = "pause_turn" if PROFILES[name].betas else "tool_use"
            follows_the_documented_flow(sessions[name], PROFILES[name].tool_type, stop_reason)
        scripted = sessions["current"]
        run_id = scripted.start(Reply([code(2), by_code(WAITS, 2)]))
        eventually((work / "up").exists, "the tool runs")
        scripted.answers.append(Reply([code_result(2), text("fine")]))
        scripted.crash()
        assert scripted.ended(run_id)["status"] == "completed"
        [result] = last(scripted.bodies[-1])
        assert "outcome unknown" in result["content"] and result["is_error"]
        assert named(scripted)[-1] == "container_xyz789"
        sessions["seed"].crash()
        for name, each in sessions.items():
            each.completes()
            assert len({head(received.raw) for received in each.model.requests}) == 1
            betas = {r.headers.get("anthropic-beta", "") for r in each.model.model.requests}
            assert betas == {",".join(PROFILES[name].betas)}, "also where tokens are counted"


def test_calls_of_one_code_run_at_once_and_nothing_but_their_results_goes_to_it(
    daemon: Daemon, work: Path
) -> None:
    """What else there is to say goes along with the next result that the model itself reads."""
    configure(work, f"[[hooks]]\nevent = 'PostToolUse'\ncommand = ['echo', '{OK}']\n")
    (work / "sub").mkdir()
    (work / "sub/AGENTS.md").write_text("Sing.")
    (work / "sub/a.png").write_bytes(png())
    meet = "touch {0}; until [ -e {1} ]; do sleep 0.02; done; cd sub; echo {0}"
    at_once = [by_code(meet.format(*pair)) for pair in ("ab", "bc", "ca")]
    picture = called(tool_use("read_file", {"path": "sub/a.png"}))
    with (
        trusted(daemon, work),
        scripted_session(daemon, work, programmatic_tools=True) as scripted,
    ):
        run_id = scripted.start(
            Reply([code(), *at_once, by_code(WAITS)], start=container("c1")),
            Reply([picture]),
            Reply([code_result(), bash("pwd")]),
            FINE,
        )
        eventually((work / "up").exists, "all of them run")
        steering = scripted.start(prompt="be quick", steer=True)
        (work / "go").touch()
        for each in (run_id, steering):
            assert scripted.ended(each)["status"] == "completed"
        _, first, second, third = map(last, scripted.bodies)
        assert [r["content"].partition("\n")[0] for r in first] == ["a", "b", "c", "done"]
        assert [r["tool_use_id"] for r in first] == [
            c["id"] for c in scripted.sent[1]["content"][1:]
        ]
        [shown] = second
        kept = Path(shown["content"].removesuffix("]").rpartition("saved to ")[2])
        assert "\n[image: image/png, " in shown["content"] and kept.read_bytes() == png()
        assert "a hook says so" not in json.dumps([first, second])
        direct, steered = third
        assert steered["text"] == "be quick"
        assert direct["content"].startswith(str(work / "sub")), "where the code's commands ended"
        assert direct["content"].count("a hook says so") == 2, "what code did not read, and its own"
        assert "Sing." in direct["content"]


def png() -> bytes:
    return base64.b64decode(image()["source"]["data"])


def test_questions_about_calls_of_code_are_asked_at_once_and_answered_one_by_one(
    ask: Ask, work: Path
) -> None:
    scripted = ask(programmatic_tools=True)
    calls = [by_code(f"touch {name}; echo {name}") for name in ("one", "two")]
    run_id = scripted.start(
        Reply([code(), *calls], start=container("c1")), Reply([code_result(), text("fine")])
    )
    one, two = sorted(asked(scripted.endpoint, 2), key=title)
    assert answer(scripted.endpoint, two, "allow_once") == 200
    eventually((work / "two").exists, "it runs while the other still waits")
    assert pending(scripted.endpoint) == [one]
    assert answer(scripted.endpoint, one, "reject_once") == 200
    assert scripted.ended(run_id)["result"]["final_text"] == "fine"
    declined, done = results(scripted)
    assert declined.startswith("The user declined") and done.startswith("two")
    assert not (work / "one").exists()


@pytest.mark.soak
@pytest.mark.timeout(3 * CODE_CALL_S)
def test_a_question_that_nobody_answers_in_time_and_a_command_without_end_cost_only_themselves(
    ask: Ask, work: Path
) -> None:
    scripted = ask(programmatic_tools=True)
    calls = [by_code(command) for command in ("touch made", "echo begun; sleep 600")]
    calls[1]["input"]["timeout_s"] = 600
    run_id = scripted.start(Reply([code(), *calls], start=container("c1")), FINE)
    slow, late = sorted(asked(scripted.endpoint, 2), key=title)
    assert answer(scripted.endpoint, slow, "allow_once") == 200
    withdrawn = False
    while not scripted.run(run_id).get("finished_at"):  # which is also somebody who attends
        withdrawn = pending(scripted.endpoint) == []
        time.sleep(1)
    assert withdrawn, "before the run ended"
    assert answer(scripted.endpoint, late, "allow_once") == 403
    refused, ended = results(scripted)
    assert refused.startswith("nobody answered in time; ")
    assert ended.startswith("begun") and "timed out after" in ended
    assert not (work / "made").exists()


async def test_what_code_does_is_shown_live_in_a_load_and_in_the_transcript(
    daemon: Daemon, work: Path
) -> None:
    with scripted_session(daemon, work, programmatic_tools=True) as scripted:
        async with over_websocket(scripted.endpoint) as viewer:
            await viewer.new()
            scripted.prompt(
                Reply([code(), by_code("echo " + "x" * 400)], start=container("c1")),
                Reply([code_result(), text("It is 42.")]),
            )
            await viewer.until(lambda _: viewer.texts() == "It is 42.", "all of it")
            live = told(viewer.updates())
        async with over_http(scripted.endpoint) as late:
            await late.load()
            assert told(late.updates()) == live
        call_id = scripted.sent[1]["content"][1]["id"]
        caller = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
        seen = {update["toolCallId"]: update for update in live.values()}
        assert list(seen) == ["srvtoolu_1", call_id]
        assert seen["srvtoolu_1"]["title"] == "x = await bash()…"
        assert seen["srvtoolu_1"]["content"][0]["content"]["text"] == "42"
        meta = seen[call_id]["_meta"]
        assert meta["sidecar/caller"] == caller and meta["sidecar/kept_out"] > 100
        sid = scripted.endpoint.session_id
        filled = scripted.endpoint.get(f"/sessions/{sid}/context")[1]
        kept_out = [call["kept_out"] for call in filled["calls"]]
        assert kept_out == [0, meta["sidecar/kept_out"]]
        assert filled["kept_out"] == sum(kept_out)
        with scripted.endpoint.request(
            "GET", f"/sessions/{sid}/transcript?format=markdown"
        ) as response:
            markdown = response.read().decode()
        assert "x = await bash()\nprint(x)" in markdown and "(called by code)" in markdown


def told(updates: list[Json]) -> dict[str, Json]:
    """Each tool call as it ended, with all that was said of it."""
    calls: dict[str, Json] = {}
    for update in updates:
        if update["sessionUpdate"].startswith("tool_call"):
            before = calls.get(update["toolCallId"], {})
            meta = before.get("_meta", {}) | update.get("_meta", {})
            calls[update["toolCallId"]] = before | update | ({"_meta": meta} if meta else {})
    for call in calls.values():
        call.pop("sessionUpdate"), call.pop("rawOutput", None)
    return calls


def test_a_run_that_ends_while_code_waits_leaves_a_history_that_goes_on(
    daemon: Daemon, work: Path
) -> None:
    with scripted_session(daemon, work, programmatic_tools=True, max_turns=2) as scripted:
        calls = Reply([code(), by_code("echo one")], start=container("c1"))
        run = scripted.prompt(calls, Reply([by_code("echo two")]))
        assert run["result"]["stop_reason"] == "max_turns"
        scripted.completes()
        stuck = Reply([code(2), *(by_code("echo again", 2) for _ in range(10))])
        assert scripted.prompt(stuck)["result"]["stop_reason"] == "loop_detected"
        scripted.completes()
        ended = {
            update["toolCallId"]: update["status"]
            for update in scripted.events("update")
            if update["sessionUpdate"] == "tool_call_update"
        }
        assert "in_progress" not in ended.values()
        assert (ended["srvtoolu_1"], ended["srvtoolu_2"]) == ("failed", "failed")


def test_from_the_command_line_the_demo_model_calls_tools_by_code(cli: Cli) -> None:
    cli.ok("new", "--name", "s", "--programmatic-tools")
    done = cli("prompt", "s", "!code run `echo one`, then run `echo two`")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith(("•", "  ↳"))]
    assert lines[0].startswith("• code_execution: results = await")
    assert lines[1:] == ["  ↳ bash: echo one", "  ↳ bash: echo two"]
    header, row = cli.ok("context", "s").splitlines()
    assert int(dict(zip(header.split(), row.split(), strict=True))["KEPT-OUT"]) > 0
