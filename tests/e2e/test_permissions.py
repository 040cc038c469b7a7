"""Questions from the outside: who is asked, who may answer, and what an answer is good for."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model import Reply, tool_use
from sidecar.protocol.bounds import KIB
from tests.support.daemon import Daemon
from tests.support.endpoint import run_request
from tests.support.processes import eventually
from tests.support.questions import (
    Ask,
    answer,
    answered,
    asked,
    pending,
    read,
    results,
)
from tests.support.scripted import FINE, Scripted, bash

Json = dict[str, Any]
TOUCH = Reply([bash("touch made")])


def state(session: Scripted) -> str:
    return session.daemon.call("session.status", session_id=session.endpoint.session_id)["state"]


# --- a question is state ------------------------------------------------------------------------


def test_a_call_waits_for_its_answer_and_the_session_says_so(session: Scripted, work: Path) -> None:
    run_id = session.start(TOUCH, FINE)
    (question,) = asked(session.endpoint)
    assert question["run_id"] == run_id
    assert question["toolCall"] | {"toolCallId": ""} == {
        "toolCallId": "",
        "title": "touch made",
        "kind": "execute",
        "locations": [],
        "status": "pending",
        "rawInput": {"command": "touch made"},
    }
    assert [(o["optionId"], o["kind"]) for o in question["options"]] == [
        ("allow_once", "allow_once"),
        ("allow_session", "allow_always"),
        ("allow_project", "allow_always"),
        ("reject_once", "reject_once"),
        ("reject_always", "reject_always"),
    ]
    assert question["_meta"]["sidecar"]["rules"] == ["bash(touch *)"]
    eventually(lambda: state(session) == "waiting", "the daemon knows")
    listed = session.daemon.call("session.list", state="waiting")["sessions"]
    assert [s["session_id"] for s in listed] == [session.endpoint.session_id]
    assert session.endpoint.get("/healthz")[1]["state"] == "waiting"
    assert not (work / "made").exists()
    assert answer(session.endpoint, question, "allow_once") == 200
    assert session.ended(run_id)["result"]["final_text"] == "fine"
    assert (work / "made").exists()
    assert [e["state"] for e in session.events("state")][-4:] == [
        *("running", "waiting", "running", "idle")
    ]
    assert session.events("permission_requested") == [question]
    assert session.events("permission_resolved") == [
        {
            "request_id": question["request_id"],
            "outcome": "selected",
            "option_id": "allow_once",
            "reason": "",
        }
    ]


def test_every_client_sees_the_question_and_the_first_answer_wins(
    session: Scripted, work: Path
) -> None:
    run_id = session.start(TOUCH, FINE)
    (question,) = asked(session.endpoint)
    events = f"/sessions/{session.endpoint.session_id}/events"
    with (
        session.endpoint.stream("GET", events) as one,
        session.endpoint.stream("GET", events) as other,
    ):
        for client in (one, other):
            seen = next(e for e in client if e["type"] == "permission_requested")
            assert seen["data"] == question
        for wrong in ("reject_for_good", "yes", ""):
            assert answer(session.endpoint, question, wrong) == 422
        assert answer(session.endpoint, question | {"request_id": "another"}, "allow_once") == 403
        assert answer(session.endpoint, question, "reject_once", "not now") == 200
        assert answer(session.endpoint, question, "allow_once") == 403
        for client in (one, other):
            seen = next(e for e in client if e["type"] == "permission_resolved")
            assert seen["data"]["option_id"] == "reject_once"
    session.ended(run_id)
    assert results(session) == [
        "The user declined this call. Do not retry it or work around it. Reason: not now"
    ]
    assert not (work / "made").exists()


def test_an_answer_without_a_choice_is_none(session: Scripted) -> None:
    run_id = session.start(TOUCH, FINE)
    (question,) = asked(session.endpoint)
    path = f"/sessions/{session.endpoint.session_id}/permissions/{question['request_id']}"
    for body in ({}, {"option_id": 1}, {"option_id": "allow_once", "reason": "x" * 5000}, []):
        assert session.endpoint.post(path, body)[0] == 422
    assert pending(session.endpoint) == [question]
    answer(session.endpoint, question, "reject_once")
    session.ended(run_id)


def test_a_question_outlives_its_client_and_the_next_one_finds_it(session: Scripted) -> None:
    with session.endpoint.stream("POST", "/runs", run_request("go", "stream")) as stream:
        session.answers.extend([TOUCH, FINE])
        next(stream)
    (question,) = asked(session.endpoint)
    assert question in session.events("permission_requested")
    answer(session.endpoint, question, "allow_once")
    session.ended(question["run_id"])


def test_a_question_that_fell_out_of_the_ring_is_told_again_behind_the_gap(
    ask: Ask, work: Path, tmp_path: Path
) -> None:
    session = ask(ring_bytes=64 * KIB)
    outside = tmp_path / "outside"
    outside.write_text("far")
    (work / "large").write_text("\n".join(["word " * 100] * 90))
    large = [tool_use("read_file", {"path": "large", "limit": 90 - i}) for i in range(12)]
    run_id = session.start(Reply([read(outside), *large]), FINE)
    (question,) = asked(session.endpoint)

    def told_again() -> list[Json] | None:
        gap, first = session.endpoint.events()[:2]
        # not yet where the question is the oldest event that the ring still has
        lost = "from" in gap and first["seq"] <= gap["to"]
        return [gap, first] if lost and first["type"] == "permission_requested" else None

    gap, told = eventually(told_again, "the ring has gone round") or []
    assert gap["from"] <= told["seq"] <= gap["to"]
    assert told["data"] == question
    replayed = session.endpoint.get(f"/runs/{run_id}/events")[1]["events"]
    assert replayed[-1]["type"] == "run.awaiting"
    answer(session.endpoint, question, "allow_once")
    session.ended(run_id)
    assert "far" in results(session)[0]


def test_reads_side_by_side_do_not_wait_for_the_one_that_is_asked_about(
    session: Scripted, work: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").write_text("far")
    (work / "inside").write_text("near")
    run_id = session.start(Reply([read(tmp_path / "outside"), read("inside")]), FINE)
    (question,) = asked(session.endpoint)
    ended = ("completed", "near")

    def read_inside() -> bool:
        updates = session.events("update", run_id)
        return any(u.get("status") == ended[0] and ended[1] in str(u) for u in updates)

    eventually(read_inside, "the other read has ended")
    assert pending(session.endpoint) == [question]
    answer(session.endpoint, question, "allow_once")
    session.ended(run_id)
    first, second = results(session)
    assert "far" in first
    assert "near" in second


# --- what an answer is good for -----------------------------------------------------------------


def test_an_answer_for_once_counts_once_and_one_for_the_session_until_its_end(
    session: Scripted, work: Path, ask: Ask
) -> None:
    answered(session, "allow_once", TOUCH, FINE)
    question, _ = answered(session, "allow_session", TOUCH, FINE)
    session.completes(Reply([bash("touch another")]))
    session.crash()
    session.completes(Reply([bash("touch third")]))
    assert {p.name for p in work.iterdir()} == {"made", "another", "third"}
    answered(ask(), "reject_once", TOUCH, FINE)
    assert question["_meta"]["sidecar"]["rules"] == ["bash(touch *)"]


def test_a_rejected_call_is_asked_about_again_unless_it_was_rejected_for_good(
    session: Scripted, work: Path
) -> None:
    answered(session, "reject_once", TOUCH, FINE)
    _, run = answered(session, "reject_always", TOUCH, FINE)
    assert run["result"]["stop_reason"] == "final_answer"
    session.completes(TOUCH)
    assert "bash(touch *)" in results(session)[0]
    session.crash()
    session.completes(TOUCH)
    assert not (work / "made").exists()


def test_what_is_always_allowed_in_a_project_is_so_for_all_its_sessions_and_no_other(
    session: Scripted, ask: Ask, daemon: Daemon, work: Path, tmp_path: Path
) -> None:
    answered(session, "allow_project", TOUCH, FINE)
    kept = daemon.home / "state/permissions.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(kept.read_text())["projects"][str(work)] == ["bash(touch *)"]
    ask().completes(TOUCH)
    session.crash()
    session.completes(TOUCH)
    (tmp_path / "other").mkdir()
    answered(ask(tmp_path / "other"), "reject_once", TOUCH, FINE)


def test_no_choice_at_all_cancels_the_run(session: Scripted, work: Path) -> None:
    _, run = answered(session, None, TOUCH)
    assert run["status"] == "cancelled"
    assert session.events("permission_resolved")[-1]["outcome"] == "cancelled"
    session.completes()
    assert not (work / "made").exists()


@pytest.mark.parametrize("whose", ["runs", "sessions"])
def test_a_cancel_withdraws_the_question(session: Scripted, work: Path, whose: str) -> None:
    run_id = session.start(TOUCH)
    (question,) = asked(session.endpoint)
    name = {"runs": run_id, "sessions": session.endpoint.session_id}[whose]
    assert session.endpoint.post(f"/{whose}/{name}/cancel", {})[0] in (200, 202)
    assert session.ended(run_id)["status"] == "cancelled"
    assert pending(session.endpoint) == []
    assert session.events("permission_resolved")[-1]["outcome"] == "cancelled"
    assert answer(session.endpoint, question, "allow_once") == 403
    session.completes()
    assert not (work / "made").exists()


def test_a_session_that_waits_is_destroyed_like_any_other(session: Scripted, work: Path) -> None:
    session.start(TOUCH)
    asked(session.endpoint)
    name = {"session_id": session.endpoint.session_id}
    ended = session.daemon.call("session.destroy", **name)
    assert ended["last_result"]["stop_reason"] == "cancelled"
    told = [e["type"] for e in session.daemon.call("session.output", **name)["events"]]
    assert told.index("permission_resolved") < told.index("run_finished")
    assert not (work / "made").exists()


def test_a_worker_that_dies_takes_its_question_along_and_nothing_has_run(
    session: Scripted, work: Path
) -> None:
    run_id = session.start(TOUCH, FINE)
    (question,) = asked(session.endpoint)
    session.crash()
    assert answer(session.endpoint, question, "allow_once") == 403
    assert session.ended(run_id)["result"]["final_text"] == "fine"
    assert pending(session.endpoint) == []
    assert len(results(session)) == 1
    assert not (work / "made").exists()
    eventually(lambda: state(session) == "idle", "it is idle again")
