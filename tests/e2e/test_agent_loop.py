"""The loop in a real worker against a scripted model that enforces the API's rules.

A request that the API would refuse is refused here too, so a run that completes proves that
every history it sent was legal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model import (
    Answer,
    Fault,
    Reply,
    Streamed,
    text,
    thinking,
    tool_use,
)
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint, run_request
from tests.support.model_server import ModelServer, model_server
from tests.support.processes import eventually

Talk = Callable[[ModelServer], Endpoint]


@pytest.fixture
def talk(daemon: Daemon, work: Path) -> Callable[..., Endpoint]:
    """A session that talks to the given model server."""

    def create(model: ModelServer, **params: Any) -> Endpoint:
        env = {"ANTHROPIC_BASE_URL": model.base_url, "ANTHROPIC_API_KEY": "sk-test"}
        return daemon.session(work, env=env, **params)

    return create


def run_through(
    talk: Callable[..., Endpoint], script: Sequence[Answer], **params: Any
) -> tuple[dict[str, Any], list[Any]]:
    """The Run of one prompt, and the requests the model got."""
    with model_server(script) as model:
        run = talk(model, **params).prompt("go")
        return run, [received.body for received in model.requests]


def bash(command: str) -> dict[str, Any]:
    return tool_use("bash", {"command": command})


def results_of(request: dict[str, Any]) -> list[dict[str, Any]]:
    return [b for b in request["messages"][-1]["content"] if b["type"] == "tool_result"]


def test_a_plain_answer_is_final(talk: Callable[..., Endpoint]) -> None:
    run, _ = run_through(talk, [Reply([text("Hello.")])])
    result = run["result"]
    assert result["stop_reason"] == "final_answer"
    assert result["provider_stop_reason"] == "end_turn"
    assert (result["turns"], result["tool_calls"], result["final_text"]) == (1, 0, "Hello.")
    assert result["usage"]["output_tokens"] > 0
    assert result["error"] is None


def test_parallel_calls_are_answered_in_one_user_message_in_call_order(
    talk: Callable[..., Endpoint],
) -> None:
    script = [
        Reply([text("Both."), bash("echo first"), bash("echo second"), bash("exit 3")]),
        Reply([text("Done.")]),
    ]
    run, requests = run_through(talk, script)
    assert (run["result"]["turns"], run["result"]["tool_calls"]) == (2, 3)
    asked = [b["id"] for b in requests[1]["messages"][-2]["content"] if b["type"] == "tool_use"]
    results = results_of(requests[1])
    assert [r["tool_use_id"] for r in results] == asked
    assert requests[1]["messages"][-1]["content"] == results
    assert "first" in results[0]["content"]
    assert "second" in results[1]["content"]
    assert results[2]["is_error"] is True


def test_the_directory_carries_over_between_calls_and_the_environment_does_not(
    talk: Callable[..., Endpoint],
) -> None:
    script = [
        Reply([bash("mkdir -p deep && cd deep && export LEFT=behind")]),
        Reply([bash("basename $PWD; echo left=$LEFT")]),
        Reply([text("ok")]),
    ]
    _, requests = run_through(talk, script)
    assert "deep\nleft=\n" in results_of(requests[2])[0]["content"]


def test_blocks_decide_when_the_stop_reason_says_nothing_or_pause(
    talk: Callable[..., Endpoint],
) -> None:
    script = [
        Reply([bash("echo a")], stop_reason="pause_turn"),
        Reply([bash("echo b")], stop_reason="end_turn"),
        Reply([text("end")]),
    ]
    run, _ = run_through(talk, script)
    assert (run["result"]["stop_reason"], run["result"]["tool_calls"]) == ("final_answer", 2)


def test_max_turns_closes_the_pending_calls_and_the_next_prompt_works(
    talk: Callable[..., Endpoint],
) -> None:
    with model_server(
        [Reply([bash("echo one")]), Reply([bash("echo two")]), Reply([text("hi")])]
    ) as m:
        endpoint = talk(m, max_turns=2)
        result = endpoint.prompt("go")["result"]
        assert (result["stop_reason"], result["turns"], result["tool_calls"]) == ("max_turns", 2, 1)
        assert endpoint.prompt("and now?")["result"]["final_text"] == "hi"
        closing = m.requests[2].body["messages"][-1]["content"]
        assert closing[0]["content"] == "not executed: turn limit"
        assert closing[0]["is_error"] is True
        assert closing[1]["text"] == "and now?"


def test_a_truncated_call_is_never_run(talk: Callable[..., Endpoint], work: Path) -> None:
    with model_server(
        [Reply([bash("touch ran")], stop_reason="max_tokens"), Reply([text("ok")])]
    ) as m:
        endpoint = talk(m)
        assert endpoint.prompt("go")["result"]["stop_reason"] == "max_tokens"
        assert endpoint.prompt("again")["status"] == "completed"
        assert not (work / "ran").exists()


def test_broken_tool_input_is_answered_and_never_run(
    talk: Callable[..., Endpoint], work: Path
) -> None:
    broken = Streamed(
        {"type": "tool_use", "id": "toolu_broken", "name": "bash", "input": {}},
        [{"type": "input_json_delta", "partial_json": '{"command": "touch ran'}],
    )
    run, requests = run_through(talk, [Reply([broken]), Reply([text("sorry")])])
    assert run["status"] == "completed"
    assert "JSON" in results_of(requests[1])[0]["content"]
    assert not (work / "ran").exists()


def test_an_unknown_tool_and_wrong_input_are_told_to_the_model(
    talk: Callable[..., Endpoint],
) -> None:
    script = [Reply([tool_use("fly", {}), tool_use("bash", {"cmd": "ls"})]), Reply([text("ok")])]
    _, requests = run_through(talk, script)
    unknown, wrong = results_of(requests[1])
    assert "'fly'" in unknown["content"]
    assert "command" in wrong["content"]


def test_a_refusal_drops_its_partial_message(talk: Callable[..., Endpoint]) -> None:
    with model_server([Reply([text("I w")], stop_reason="refusal"), Reply([text("ok")])]) as model:
        endpoint = talk(model)
        assert endpoint.prompt("go")["result"]["stop_reason"] == "refusal"
        assert endpoint.prompt("next")["status"] == "completed"
        assert [m["role"] for m in model.requests[1].body["messages"]] == ["user"]


def test_thinking_is_streamed_apart_and_returned_unchanged(talk: Callable[..., Endpoint]) -> None:
    with model_server([Reply([thinking("hmm"), bash("true")]), Reply([text("ok")])]) as model:
        endpoint = talk(model)
        endpoint.prompt("go")
        kinds = [e["data"].get("sessionUpdate") for e in endpoint.events() if e["type"] == "update"]
        assert "agent_thought_chunk" in kinds
        block = model.requests[1].body["messages"][1]["content"][0]
        assert (block["type"], block["thinking"]) == ("thinking", "hmm")
        assert block["signature"]


def test_system_and_tools_are_the_same_bytes_in_every_request(
    talk: Callable[..., Endpoint],
) -> None:
    _, requests = run_through(talk, [Reply([bash("true")]), Reply([text("ok")])])
    first, second = (json.dumps([r["system"], r["tools"]]) for r in requests)
    assert first == second
    assert requests[1]["messages"][: len(requests[0]["messages"])] == requests[0]["messages"]


def test_cancel_during_a_tool_ends_its_processes_and_the_next_prompt_works(
    talk: Callable[..., Endpoint], work: Path
) -> None:
    stubborn = "trap '' TERM; echo $$ > pid; while true; do sleep 0.1; done"
    with model_server([Reply([bash("echo done"), bash(stubborn)]), Reply([text("ok")])]) as model:
        endpoint = talk(model)
        run = endpoint.prompt("go", "async")
        eventually(lambda: (work / "pid").exists() and (work / "pid").read_text(), "it runs")
        status, answer = endpoint.post(f"/sessions/{endpoint.session_id}/cancel")
        assert (status, answer["run_id"]) == (200, run["run_id"])
        pid = int((work / "pid").read_text())
        assert not Path(f"/proc/{pid}").exists()
        ended = endpoint.get(f"/runs/{run['run_id']}")[1]
        assert ended["status"] == "cancelled"
        assert endpoint.prompt("next")["status"] == "completed"
        closing = model.requests[1].body["messages"][-1]["content"]
        assert "done" in closing[0]["content"]
        assert closing[1]["content"] == "cancelled by user"


def test_cancel_during_the_models_silence_drops_the_partial_message(
    talk: Callable[..., Endpoint],
) -> None:
    stalled = Reply([text("half a sentence that stops")], fault=Fault("stall", after=3))
    with model_server([stalled, Reply([text("ok")])]) as model:
        endpoint = talk(model)
        run = endpoint.prompt("go", "async")
        eventually(lambda: len(model.requests) == 1, "the model was called")
        assert endpoint.post(f"/runs/{run['run_id']}/cancel")[0] == 202
        eventually(
            lambda: endpoint.get(f"/runs/{run['run_id']}")[1]["status"] == "cancelled", "cancelled"
        )
        assert endpoint.post(f"/runs/{run['run_id']}/cancel")[0] == 403
        assert endpoint.prompt("next")["status"] == "completed"
        assert [m["role"] for m in model.requests[1].body["messages"]] == ["user"]


def test_prompts_during_a_run_wait_their_turn_and_the_ninth_is_refused(
    talk: Callable[..., Endpoint], work: Path
) -> None:
    waits = Reply([bash("until [ -e go ]; do sleep 0.05; done")])
    with model_server([waits, Reply([text("first")])] + [Reply([text("later")])] * 8) as model:
        endpoint = talk(model)
        first = endpoint.prompt("go", "async")
        eventually(
            lambda: endpoint.get(f"/runs/{first['run_id']}")[1]["status"] == "in-progress",
            "started",
        )
        queued = [endpoint.prompt("next", "async") for _ in range(8)]
        assert {run["status"] for run in queued} == {"created"}
        assert endpoint.post("/runs", run_request("too many"))[0] == 409
        (work / "go").touch()
        last = queued[-1]["run_id"]
        eventually(lambda: endpoint.get(f"/runs/{last}")[1]["status"] == "completed", "all ran")


def test_cancelling_the_session_also_ends_what_waits(
    talk: Callable[..., Endpoint], work: Path
) -> None:
    with model_server([Reply([bash("touch up; sleep 60")])]) as model:
        endpoint = talk(model)
        endpoint.prompt("go", "async")
        waiting = endpoint.prompt("next", "async")
        eventually((work / "up").exists, "the tool runs")
        endpoint.post(f"/sessions/{endpoint.session_id}/cancel")
        assert endpoint.get(f"/runs/{waiting['run_id']}")[1]["status"] == "cancelled"
        assert endpoint.get("/healthz")[1]["state"] == "idle"


def test_plan_mode_runs_no_command_that_could_change_something(
    talk: Callable[..., Endpoint], work: Path
) -> None:
    script = [Reply([bash("touch ran")]), Reply([text("planned")])]
    _, requests = run_through(talk, script, mode="plan")
    assert "plan mode" in results_of(requests[1])[0]["content"]
    assert not (work / "ran").exists()


def test_the_key_reaches_the_model_and_no_tool_file_or_log(
    daemon: Daemon, work: Path, talk: Callable[..., Endpoint]
) -> None:
    look = "env; cat /proc/$PPID/environ /proc/*/environ 2>/dev/null | tr '\\0' '\\n'"
    with model_server(
        [Reply([bash(f"({look}) | grep -c s[k]-test; true")]), Reply([text("ok")])]
    ) as model:
        endpoint = talk(model)
        endpoint.prompt("go")
        counted = results_of(model.requests[1].body)[0]["content"]
    assert counted.startswith("0\n"), counted
    for path in daemon.home.rglob("*"):
        if path.is_file():
            assert b"sk-test" not in path.read_bytes(), path


def test_the_transcript_holds_the_whole_conversation(talk: Callable[..., Endpoint]) -> None:
    with model_server([Reply([bash("echo hi")]), Reply([text("bye")])]) as model:
        endpoint = talk(model)
        endpoint.prompt("go")
        sid = endpoint.session_id
        records = endpoint.get(f"/sessions/{sid}/transcript")[1]["records"]
        with endpoint.request("GET", f"/sessions/{sid}/transcript?format=markdown") as response:
            markdown = response.read().decode()
    assert [record["kind"] for record in records] == [
        "session",
        "run_started",
        "note",
        "message",
        "api_call",
        "message",
        "tool_intent",
        "message",
        "api_call",
        "message",
        "run_finished",
    ]
    assert [record["n"] for record in records] == list(range(1, 12))
    assert "## go" in markdown
    assert "echo hi" in markdown
    assert "bye" in markdown
