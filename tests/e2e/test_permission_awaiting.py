"""Questions as the Agent Communication Protocol has them: a run awaits, and is resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from session_worker.demo_model import Reply, text
from tests.support.endpoint import run_request
from tests.support.processes import eventually
from tests.support.questions import (
    answer,
    asked,
    pending,
    read,
)
from tests.support.scripted import FINE, Scripted, bash

Json = dict[str, Any]
TOUCH = Reply([bash("touch made")])


def resume(option: str, mode: str, *more: str) -> Json:
    parts = [{"content": words} for words in (option, *more)]
    return {"await_resume": {"message": {"role": "user", "parts": parts}}, "mode": mode}


def test_a_synchronous_run_comes_back_awaiting_and_is_resumed(
    session: Scripted, work: Path
) -> None:
    session.answers.extend([TOUCH, TOUCH, FINE])
    run = session.endpoint.prompt("go")
    assert (run["status"], run["finished_at"]) == ("awaiting", None)
    people, whole = run["await_request"]["message"]["parts"]
    assert "touch made" in people["content"]
    assert json.loads(whole["content"]) == pending(session.endpoint)[0]
    path = f"/runs/{run['run_id']}"
    assert session.endpoint.post(path, resume("perhaps", "sync"))[0] == 422
    body = resume("reject_once", "sync", "not", "yet")
    status, run = session.endpoint.post(path, body)
    assert (status, run["status"]) == (200, "awaiting")
    status, run = session.endpoint.post(path, resume("allow_once", "sync"))
    assert (status, run["status"], run["await_request"]) == (200, "completed", None)
    assert (work / "made").exists()
    first = session.bodies[1]["messages"][-1]["content"][0]
    assert first["content"].endswith("Reason: not\nyet")
    assert session.endpoint.post(path, resume("allow_once", "sync"))[0] == 403


def test_a_run_is_answered_only_for_the_question_that_was_shown(
    session: Scripted, work: Path
) -> None:
    run_id = session.start(Reply([bash("touch one")]), TOUCH, FINE)
    path = f"/runs/{run_id}"
    (first,) = asked(session.endpoint)
    assert session.endpoint.post(path, resume("allow_once", "async"))[0] == 403
    assert session.run(run_id)["status"] == "awaiting"
    answer(session.endpoint, first, "allow_once")
    eventually(lambda: pending(session.endpoint) not in ([], [first]), "the next question")
    assert session.endpoint.post(path, resume("allow_once", "async"))[0] == 403
    assert session.run(run_id)["status"] == "awaiting"
    status, run = session.endpoint.post(path, resume("allow_always", "async"))
    assert (status, run["run_id"]) == (202, run_id)
    assert session.ended(run_id)["status"] == "completed"
    assert {p.name for p in work.iterdir()} == {"one", "made"}


def test_a_streamed_run_ends_its_stream_at_each_question_and_loses_nothing(
    session: Scripted, tmp_path: Path
) -> None:
    """Two questions at once: the second was asked before the first had its answer."""
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"this is {name}")
    session.answers.extend([Reply([read(tmp_path / "one"), read(tmp_path / "two")]), FINE])
    told: list[Json] = []
    with session.endpoint.stream("POST", "/runs", run_request("go", "stream")) as stream:
        told += stream
    asked(session.endpoint, 2)
    path = f"/runs/{told[0]['run']['run_id']}"
    for _ in range(2):
        assert told[-1]["type"] == "run.awaiting"
        body = resume("allow_once", "stream")
        with session.endpoint.stream("POST", path, body) as stream:
            told += stream
    assert told[-1]["type"] == "run.completed"
    asked_for = [e["run"]["await_request"] for e in told if e["type"] == "run.awaiting"]
    assert len({json.dumps(each) for each in asked_for}) == 2
    replayed = session.endpoint.get(f"{path}/events")[1]["events"]
    kinds = [e["type"] for e in told if e["type"] != "run.awaiting"]
    assert kinds == [e["type"] for e in replayed]


def test_events_of_a_run_are_replayed_up_to_the_question_that_waits(session: Scripted) -> None:
    run_id = session.start(TOUCH, Reply([text("And"), bash("touch more")]), FINE)
    (first,) = asked(session.endpoint)
    answer(session.endpoint, first, "allow_once")
    eventually(lambda: pending(session.endpoint) not in ([], [first]), "the next question")
    replayed = session.endpoint.get(f"/runs/{run_id}/events")[1]["events"]
    said = [e["message"]["parts"] for e in replayed if e["type"] == "message.completed"]
    assert [part["content"] for (part,) in said] == ["And"]
    assert replayed[-1]["type"] == "run.awaiting"
    session.cancel(run_id)


def test_an_answer_that_names_its_question_never_answers_another(
    session: Scripted, work: Path
) -> None:
    run_id = session.start(Reply([bash("touch one")]), TOUCH, FINE)
    (first,) = asked(session.endpoint)
    path = f"/runs/{run_id}"
    named = {"request_id": first["request_id"], "option_id": "allow_once"}
    body = resume("", "async")
    body["await_resume"]["message"]["parts"] = [
        {"content_type": "application/json", "content": json.dumps(named)}
    ]
    assert session.run(run_id)["status"] == "awaiting"
    assert session.endpoint.post(path, body)[0] == 202
    eventually(lambda: pending(session.endpoint) not in ([], [first]), "the next question")
    assert session.run(run_id)["status"] == "awaiting"  # and so another client sees the next one
    assert session.endpoint.post(path, body)[0] == 403
    session.cancel(run_id)
    assert {p.name for p in work.iterdir()} == {"one"}
