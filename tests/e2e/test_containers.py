"""Answers that pause, the provider's containers, and the calls that code makes in there."""

from __future__ import annotations

from pathlib import Path

import pytest

from session_worker.demo_model import ApiError, Fault, Reply, text, thinking
from tests.support.from_code import EARLY, by_code, code, code_result, container, named
from tests.support.processes import eventually
from tests.support.scripted import FINE, Scripted, bash

EXPIRED = ApiError(400, "container_c1 has expired. Please create another container.")
LOST = "[The code execution container has expired; its files and variables are lost.]"
WAITS = "touch up; until [ -e go ]; do sleep 0.02; done; rm go up; echo done"


def test_a_paused_answer_is_sent_back_unchanged_and_goes_on(scripted: Scripted) -> None:
    paused = Reply(
        [thinking("Let me compute"), text("Computing."), code()],
        stop_reason="pause_turn",
        start=container("c1"),
    )
    goes_on = Reply([code_result(), text("It is 42.")])
    run = scripted.prompt(paused, goes_on)
    assert (run["result"]["final_text"], run["result"]["turns"]) == ("It is 42.", 2)
    first, second = (body["messages"] for body in scripted.bodies)
    assert second[:1] == first
    (answer,) = second[1:]
    assert answer["role"] == "assistant"
    assert [b["type"] for b in answer["content"]] == ["thinking", "text", "server_tool_use"]
    assert answer["content"][2] == code()
    assert named(scripted) == [None, "c1"]
    scripted.completes()
    assert scripted.sent[1]["content"][: len(answer["content"])] == answer["content"]


def test_an_answer_that_only_ever_pauses_ends_after_eight_resends(scripted: Scripted) -> None:
    pauses = [
        Reply([code(n), *([code_result(n - 1)] if n else [])][::-1], stop_reason="pause_turn")
        for n in range(9)
    ]
    result = scripted.prompt(*pauses)["result"]
    assert (result["stop_reason"], result["turns"]) == ("max_turns", 9)
    assert result["provider_stop_reason"] == "pause_turn"
    scripted.completes()
    assert "srvtoolu_8" not in str(scripted.sent), "what has no result is given up"


def test_the_worker_that_goes_on_sends_a_paused_answer_back_unchanged(scripted: Scripted) -> None:
    paused = Reply([text("Wait."), code()], stop_reason="pause_turn", start=container("c1"))
    run_id = scripted.start(paused, Reply([code_result()], fault=Fault("stall", after=0)))
    scripted.was_asked(2)
    scripted.answers.append(Reply([code_result(), text("It is 42.")]))
    scripted.crash()
    assert scripted.ended(run_id)["result"]["final_text"] == "It is 42."
    assert scripted.bodies[1]["messages"] == scripted.bodies[2]["messages"]
    assert named(scripted) == [None, "c1", "c1"]


def test_the_newest_container_is_named_ever_after(scripted: Scripted) -> None:
    scripted.prompt(Reply([text("a")], start=container("c1"), deltas=[container("c2"), {}]))
    scripted.prompt(FINE)
    scripted.crash()
    broken = Reply([text("b")], start=container("c3"), fault=Fault("eof"))
    scripted.prompt(broken, Reply([text("c")], start=container("c4")))
    scripted.completes()
    assert named(scripted) == [None, "c2", "c2", "c2", "c4"]


def test_a_container_whose_time_has_run_out_is_not_named_and_the_model_is_told(
    scripted: Scripted,
) -> None:
    for restarts in (False, True):
        scripted.prompt(Reply([text("a")], start=container("c1", EARLY)))
        if restarts:
            scripted.crash()
        scripted.completes()
        assert named(scripted)[-1] is None
        assert scripted.sent[-1]["content"][-1]["text"] == LOST
    assert scripted.events("retry") == []
    scripted.completes()
    assert scripted.sent[-1]["content"][-1]["text"] == "go", "told once"


@pytest.mark.parametrize(
    "failures", [[EXPIRED], [ApiError(500, body="<html>"), ApiError(500, body="<html>")]]
)
def test_a_container_that_has_expired_is_forgotten_once_and_the_model_is_told(
    scripted: Scripted, failures: list[ApiError]
) -> None:
    scripted.prompt(Reply([text("a")], start=container("c1")))
    scripted.completes(*failures)
    assert named(scripted)[-2:] == ["c1", None]
    assert scripted.sent[-1]["content"][-1]["text"] == LOST
    scripted.crash()
    scripted.completes()
    assert named(scripted)[-1] is None
    run = scripted.prompt(EXPIRED)
    assert run["result"]["stop_reason"] == "error", "there is nothing to do without"


@pytest.mark.parametrize("stop_reason", ["tool_use", "pause_turn", ""])
def test_the_calls_of_code_are_answered_by_results_alone_in_its_container(
    scripted: Scripted, work: Path, stop_reason: str
) -> None:
    calls = Reply(
        [text("Look."), code(), by_code(WAITS), by_code("echo two")],
        stop_reason=stop_reason,
        start=container("c1"),
    )
    again = Reply([by_code("echo three")], stop_reason=stop_reason, deltas=[container("c2")])
    ends = Reply([code_result(), bash("echo four")])
    host = scripted.start(calls, again, ends, FINE)
    eventually((work / "up").exists, "the tool runs")
    steering = scripted.start(prompt="later", steer=True)
    (work / "go").touch()
    for run_id in (host, steering):
        run = scripted.ended(run_id)
        assert (run["status"], run["result"]["tool_calls"]) == ("completed", 4)
    assert named(scripted) == [None, "c1", "c2", "c2"]
    for body, texts in zip(
        scripted.bodies[1:], (["done", "two"], ["three"], ["four"]), strict=True
    ):
        content = body["messages"][-1]["content"]
        results = [block for block in content if block["type"] == "tool_result"]
        assert all(t in r["content"] for t, r in zip(texts, results, strict=True))
        assert (content != results) is (texts == ["four"]), "nobody interrupts the code"
    assert scripted.sent[-1]["content"][-1]["text"] == "later"


def test_an_answer_that_was_filled_in_at_its_start_is_shown_and_run_like_any_other(
    scripted: Scripted,
) -> None:
    filled = {**by_code("echo two"), "id": "toolu_two"}
    script = [
        Reply([code(), by_code("echo one")], start=container("c1")),
        Reply(start={"content": [text("More."), filled], "stop_reason": "tool_use"}, deltas=[]),
        Reply([code_result(), text("fine")]),
    ]
    run = scripted.prompt(*script)
    assert (run["result"]["tool_calls"], run["result"]["final_text"]) == (2, "fine")
    shown = [u["content"]["text"] for u in scripted.events("update") if "messageId" in u]
    assert "More." in shown


@pytest.mark.parametrize("ending", ["cancel", "crash", "expiry", "max_tokens"])
def test_code_that_waits_leaves_a_session_that_goes_on_however_its_run_ends(
    scripted: Scripted, work: Path, ending: str
) -> None:
    calls = Reply([code(), by_code(WAITS)], start=container("c1", EARLY))
    if ending == "max_tokens":
        cut = Reply([code(), by_code("touch up")], stop_reason="max_tokens", start=container("c1"))
        assert scripted.prompt(cut)["result"]["stop_reason"] == "max_tokens"
    else:
        run_id = scripted.start(calls)
        eventually((work / "up").exists, "the tool runs")
    if ending == "cancel":
        scripted.cancel(run_id)
    elif ending == "crash":
        scripted.answers.append(Reply([code_result(), text("fine")]))
        scripted.crash()
        assert scripted.ended(run_id)["status"] == "completed"
        assert named(scripted)[-1] == "c1", "nobody but the provider knows whether it still waits"
        assert "interrupted" in scripted.sent[-1]["content"][0]["content"]
    elif ending == "expiry":
        scripted.answers += [EXPIRED, FINE]
        (work / "go").touch()
        assert scripted.ended(run_id)["status"] == "completed"
        assert named(scripted) == [None, "c1", None]
        assert "done" in scripted.sent[-1]["content"][0]["content"], "what was done is not lost"
        assert scripted.sent[-1]["content"][-1]["text"] == LOST
    scripted.completes()
    scripted.crash()
    scripted.completes()
