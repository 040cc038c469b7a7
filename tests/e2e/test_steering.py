"""A prompt that steers goes along with the run under way, or runs on its own, but is never lost."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from session_worker.demo_model import ApiError, Fault, Received, Reply, text, tool_use
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint, run_request
from tests.support.model_server import ModelServer, model_server
from tests.support.processes import eventually

WAITS = Reply([tool_use("bash", {"command": "touch up; until [ -e go ]; do sleep 0.02; done"})])
"""A tool call that lasts until the test lets it end."""
LOOKS = Reply([tool_use("bash", {"command": "true"})])


def steer(endpoint: Endpoint, words: str) -> str:
    """The id of the run of a steering prompt."""
    status, run = endpoint.post("/runs", run_request(words, "async") | {"steer": True})
    assert status == 202, run
    return run["run_id"]


def hosted(endpoint: Endpoint, work: Path) -> str:
    """The id of a run whose tool is at work."""
    run = endpoint.prompt("go", "async")
    eventually((work / "up").exists, "the tool is at work")
    return run["run_id"]


def finished(endpoint: Endpoint, run_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        run = endpoint.get(f"/runs/{run_id}")[1]
        return run if run["finished_at"] else None

    return eventually(look, "the run has ended")


def crash(daemon: Daemon, endpoint: Endpoint) -> None:
    before = daemon.call("session.status", session_id=endpoint.session_id)
    os.kill(before["pid"], signal.SIGKILL)
    eventually(lambda: endpoint.get("/healthz")[1]["pid"] != before["pid"], "another worker")


def said(request: Received) -> list[list[str]]:
    """What the user said in each message: text as it is, results by their type."""
    return [
        [block.get("text", block["type"]) for block in message["content"]]
        for message in request.body["messages"]
        if message["role"] == "user"
    ]


def test_it_is_delivered_behind_the_next_tool_results_and_ends_with_its_host(
    daemon: Daemon, work: Path
) -> None:
    with model_server([WAITS, Reply([text("done so")]), Reply([text("later")])]) as model:
        endpoint = model.session(daemon, work)
        host = hosted(endpoint, work)
        later = endpoint.prompt("then this", "async")["run_id"]
        first, second = steer(endpoint, "rather so"), steer(endpoint, "and so")
        assert endpoint.get(f"/runs/{first}")[1]["status"] == "created"
        (work / "go").touch()
        ended = [finished(endpoint, run_id) for run_id in (host, first, second)]
        assert finished(endpoint, later)["result"]["final_text"] == "later"
        assert [run["result"] for run in ended] == [ended[0]["result"]] * 3
        assert [run["output"] for run in ended] == [ended[0]["output"]] * 3
        together = ["tool_result", "rather so", "and so"]
        assert said(model.requests[1]) == [["go"], together]
        assert said(model.requests[2]) == [["go"], together, ["then this"]]
        check_events(endpoint, host, first)
        crash(daemon, endpoint)
        again = [finished(endpoint, run_id) for run_id in (host, first, second)]
        assert [(run["result"], run["output"]) for run in again] == [
            (run["result"], run["output"]) for run in ended
        ]


def check_events(endpoint: Endpoint, host: str, steering: str) -> None:
    events = [e for e in endpoint.events() if e["run_id"] in (host, steering)]
    kinds = [e["type"] for e in events if e["run_id"] == steering]
    assert kinds == ["run_started", "update", "run_finished"]
    chunk = next(e for e in events if e["run_id"] == steering and e["type"] == "update")
    assert chunk["data"]["sessionUpdate"] == "user_message_chunk"
    ends = [e["run_id"] for e in events if e["type"] == "run_finished"]
    assert ends == [steering, host]


def test_what_comes_during_the_final_answer_runs_afterwards(daemon: Daemon, work: Path) -> None:
    slow = Reply([text("a long answer " * 10)], tps=50)
    with model_server([slow, Reply([text("heard")])]) as model:
        endpoint = model.session(daemon, work)
        host = endpoint.prompt("go", "async")["run_id"]
        eventually(lambda: model.requests, "the model answers")
        steering = steer(endpoint, "rather so")
        assert finished(endpoint, steering)["result"]["final_text"] == "heard"
        assert finished(endpoint, host)["result"]["final_text"].startswith("a long answer")
        assert said(model.requests[1]) == [["go"], ["rather so"]]


def test_without_a_run_under_way_it_is_an_ordinary_prompt(daemon: Daemon, work: Path) -> None:
    with model_server([LOOKS, Reply([text("ok")])]) as model:
        endpoint = model.session(daemon, work)
        run = finished(endpoint, steer(endpoint, "go"))
        assert (run["result"]["turns"], run["result"]["final_text"]) == (2, "ok")
        assert run["output"][0]["parts"][0]["content"] == "ok"


def test_a_worker_that_dies_after_the_delivery_does_not_say_it_twice(
    daemon: Daemon, work: Path
) -> None:
    stalls = Reply([text("half")], fault=Fault("stall", after=3))
    with model_server([WAITS, stalls, LOOKS, Reply([text("done so")])]) as model:
        endpoint = model.session(daemon, work)
        host = hosted(endpoint, work)
        steering = steer(endpoint, "rather so")
        (work / "go").touch()
        eventually(lambda: len(model.requests) == 2, "it was delivered")
        crash(daemon, endpoint)
        ended = [finished(endpoint, run_id)["result"] for run_id in (host, steering)]
        assert ended[0] == ended[1]
        assert ended[0]["final_text"] == "done so"
        together = ["tool_result", "rather so"]
        assert said(model.requests[2]) == [["go"], together]
        assert said(model.requests[3]) == [["go"], together, ["tool_result"]]
        assert model.requests[2].body == model.requests[1].body


def test_a_worker_that_dies_before_the_delivery_delivers_it_once(
    daemon: Daemon, work: Path
) -> None:
    with model_server([WAITS, LOOKS, Reply([text("done so")])]) as model:
        endpoint = model.session(daemon, work)
        host = hosted(endpoint, work)
        steering = steer(endpoint, "rather so")
        crash(daemon, endpoint)
        ended = [finished(endpoint, run_id)["result"] for run_id in (host, steering)]
        assert ended[0] == ended[1]
        assert count(model, "rather so") == 1


def count(model: ModelServer, words: str) -> int:
    return json.dumps(model.requests[-1].body).count(words)


def test_a_host_that_ends_without_another_turn_leaves_it_to_run(daemon: Daemon, work: Path) -> None:
    calls = [tool_use("bash", {"command": "true"})]
    slow = Reply([text("a long answer " * 10), *calls], tps=50)
    with model_server([slow, Reply([text("heard")])]) as model:
        endpoint = model.session(daemon, work, max_turns=1)
        host = endpoint.prompt("go", "async")["run_id"]
        eventually(lambda: model.requests, "the model answers")
        steering = steer(endpoint, "rather so")
        assert finished(endpoint, steering)["result"]["final_text"] == "heard"
        assert finished(endpoint, host)["result"]["stop_reason"] == "max_turns"
        assert said(model.requests[1]) == [["go"], ["tool_result", "rather so"]]


def test_cancelling_the_host_leaves_what_was_not_delivered_to_run(
    daemon: Daemon, work: Path
) -> None:
    with model_server([WAITS, Reply([text("heard")])]) as model:
        endpoint = model.session(daemon, work)
        host = hosted(endpoint, work)
        steering = steer(endpoint, "rather so")
        endpoint.post(f"/runs/{host}/cancel")
        assert finished(endpoint, steering)["result"]["final_text"] == "heard"
        assert finished(endpoint, host)["status"] == "cancelled"


def test_before_its_delivery_it_can_be_cancelled_alone_and_after_it_with_its_host(
    daemon: Daemon, work: Path
) -> None:
    stalls = Reply([text("half")], fault=Fault("stall", after=3))
    with model_server([WAITS, stalls, Reply([text("ok")])]) as model:
        endpoint = model.session(daemon, work)
        host = hosted(endpoint, work)
        waiting, delivered = steer(endpoint, "not so"), steer(endpoint, "rather so")
        endpoint.post(f"/runs/{waiting}/cancel")
        assert finished(endpoint, waiting)["status"] == "cancelled"
        (work / "go").touch()
        eventually(lambda: len(model.requests) == 2, "it was delivered")
        endpoint.post(f"/runs/{delivered}/cancel")
        for run_id in (host, delivered):
            assert finished(endpoint, run_id)["status"] == "cancelled"
        assert endpoint.prompt("next")["status"] == "completed"
        assert said(model.requests[2]) == [["go"], ["tool_result", "rather so", "next"]]


def test_it_fails_with_its_host_and_the_next_prompt_works(daemon: Daemon, work: Path) -> None:
    with model_server([WAITS, ApiError(403, "no more"), Reply([text("ok")])]) as model:
        endpoint = model.session(daemon, work)
        host = hosted(endpoint, work)
        steering = steer(endpoint, "rather so")
        (work / "go").touch()
        ended = [finished(endpoint, run_id) for run_id in (host, steering)]
        assert [run["status"] for run in ended] == ["failed", "failed"]
        assert ended[0]["result"] == ended[1]["result"]
        assert endpoint.prompt("next")["status"] == "completed"


def test_it_counts_as_a_waiting_prompt(daemon: Daemon, work: Path) -> None:
    with model_server([WAITS, Reply([text("done so")])]) as model:
        endpoint = model.session(daemon, work)
        hosted(endpoint, work)
        last = [steer(endpoint, f"word {n}") for n in range(8)][-1]
        refused = endpoint.post("/runs", run_request("one too many") | {"steer": True})
        assert refused[0] == 409
        (work / "go").touch()
        assert finished(endpoint, last)["result"]["final_text"] == "done so"
        assert said(model.requests[1])[1] == ["tool_result", *(f"word {n}" for n in range(8))]
