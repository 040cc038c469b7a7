"""Cancelled at any moment: answered at once, nothing starts afterwards, the next prompt works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from session_worker.demo_model import ApiError, Fault, Reply, Request, text, thinking
from tests.support.daemon import Daemon
from tests.support.processes import eventually
from tests.support.scripted import FINE, Scripted, bash, scripted_session

THOUGHT = thinking("Hm, let me think about that")
SAID = text("I begin with a long sentence")
WAITS = Reply([bash("touch up; until [ -e go ]; do sleep 0.02; done; rm go up")])


def stalled(*content: dict[str, Any], after: int) -> Reply:
    return Reply([*content, bash("touch never")], fault=Fault("stall", after=after))


def texts(messages: list[dict[str, Any]]) -> list[str]:
    """What the user has said."""
    blocks = [b for m in messages if m["role"] == "user" for b in m["content"]]
    return [block["text"] for block in blocks if block["type"] == "text"]


def test_cancelled_at_any_moment_of_a_model_call_nothing_of_it_is_kept(
    scripted: Scripted, work: Path
) -> None:
    moments = {
        "before the first byte": stalled(after=0),
        "after the headers": stalled(after=1),
        "in a thought": stalled(THOUGHT, after=4),
        "in a sentence": stalled(SAID, after=4),
        "in the input of a call": stalled(THOUGHT, SAID, after=14),
        "in a pause before the next try": ApiError(529, "busy", {"retry-after": "100"}),
        "in a pause after an answer that broke off": Reply(
            [SAID], fault=Fault("overloaded", after=6)
        ),
    }
    for moment, answer in moments.items():
        asked = len(scripted.bodies)
        run_id = scripted.start(answer, prompt=moment)
        scripted.was_asked(asked + 1)
        if "pause" in moment:
            eventually(lambda r=run_id: scripted.events("retry", r), "it waits")
        run = scripted.cancel(run_id)
        assert run["result"]["stop_reason"] == "cancelled"
        assert (run["result"]["turns"], run["output"]) == (1, []), moment
        assert len(scripted.bodies) == asked + 1, moment
        scripted.completes()
        assert len(scripted.bodies) == asked + 2, moment
        assert [m["role"] for m in scripted.sent][-1] == "user"
        assert texts(scripted.sent)[-2:] == [moment, "go"], "what was asked is kept"
    assert not (work / "never").exists()


def test_cancelled_between_its_tools_a_run_starts_no_further_one(
    scripted: Scripted, work: Path
) -> None:
    calls = [bash("echo done"), bash("touch up; sleep 60"), bash("touch never")]
    run_id = scripted.start(Reply([THOUGHT, *calls]))
    eventually((work / "up").exists, "the second tool runs")
    run = scripted.cancel(run_id)
    assert (run["result"]["turns"], run["result"]["tool_calls"]) == (1, 3)
    scripted.completes()
    results = scripted.sent[-1]["content"][:3]
    assert "done" in results[0]["content"]
    assert [r["content"] for r in results[1:]] == ["cancelled by user"] * 2
    assert [r.get("is_error", False) for r in results] == [False, True, True]
    assert not (work / "never").exists()


def by_what_is_said_last(request: Request) -> Reply:
    """A request of a run that was cancelled may come to be answered after that."""
    match request.body["messages"][-1]["content"][-1]:
        case {"type": "tool_result"}:
            return Reply([text("Now the answer")], tps=4000)
        case {"text": "and now?"}:
            return FINE
        case _:
            return Reply([THOUGHT, SAID, bash("echo ran >> log")], tps=4000)


def test_cancelled_after_any_of_its_events_a_run_ends_and_the_next_prompt_works(
    daemon: Daemon, work: Path
) -> None:
    statuses: list[str] = []
    with scripted_session(daemon, work, by_what_is_said_last) as scripted:
        endpoint = scripted.endpoint
        while statuses.count("completed") < 3:
            events = f"/sessions/{endpoint.session_id}/events?after={endpoint.events()[-1]['seq']}"
            run_id = scripted.start()
            with endpoint.stream("GET", events) as seen:
                for _, event in zip(range(len(statuses) + 1), seen, strict=False):
                    if event["type"] == "run_finished":
                        break
            assert endpoint.post(f"/runs/{run_id}/cancel")[0] in (202, 403)
            statuses.append(scripted.ended(run_id)["status"])
            assert scripted.prompt(prompt="and now?")["result"]["final_text"] == "fine"
    assert statuses.count("cancelled") > 10, statuses
    ran = (work / "log").read_text().splitlines()
    assert len(ran) <= len(statuses)


def test_cancelling_twice_is_cancelling_once_and_one_that_has_ended_cannot_be(
    scripted: Scripted, work: Path
) -> None:
    run_id = scripted.start(Reply([bash("trap '' TERM; touch up; while :; do sleep 0.1; done")]))
    eventually((work / "up").exists, "the tool runs")
    cancel = f"/runs/{run_id}/cancel"
    status, run = scripted.endpoint.post(cancel)
    assert (status, run["status"]) == (202, "cancelling")
    assert scripted.endpoint.post(cancel)[0] == 202
    assert scripted.endpoint.post(f"/sessions/{scripted.endpoint.session_id}/cancel")[0] == 200
    assert scripted.run(run_id)["status"] == "cancelled"
    assert scripted.endpoint.post(cancel)[0] == 403
    assert len(scripted.events("run_finished")) == 1
    scripted.completes()


def test_a_prompt_that_waits_is_cancelled_alone_and_never_said(
    scripted: Scripted, work: Path
) -> None:
    first = scripted.start(WAITS, FINE)
    eventually((work / "up").exists, "the tool runs")
    waiting = scripted.start(prompt="never mind")
    steering = scripted.start(prompt="never steer", steer=True)
    last = scripted.start(FINE, prompt="and then")
    for run_id in (waiting, steering):
        assert scripted.cancel(run_id)["result"]["turns"] == 0
    assert scripted.run(first)["status"] == "in-progress"
    (work / "go").touch()
    assert scripted.ended(first)["status"] == "completed"
    assert scripted.ended(last)["status"] == "completed"
    assert texts(scripted.sent) == ["go", "and then"]


def test_a_run_is_cancelled_that_went_on_in_another_worker(scripted: Scripted, work: Path) -> None:
    run_id = scripted.start(WAITS, stalled(SAID, after=3))
    eventually((work / "up").exists, "the tool runs")
    scripted.crash()
    scripted.was_asked(2)
    assert scripted.cancel(run_id)["result"]["turns"] >= 1
    scripted.completes()
    assert texts(scripted.sent) == ["go", "go"]
