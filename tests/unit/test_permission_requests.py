"""A session's pending questions: who may answer, and what becomes of one that nobody answers."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_worker.attendance import Attendance
from session_worker.event_log import EventLog
from session_worker.permission_request import Answer, PermissionRequest
from session_worker.permission_requests import NotPending, PermissionRequests, UnknownOption
from sidecar.protocol import bounds, events

OPTIONS = [
    {"optionId": "allow_once", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "allow_session", "name": "Allow `x`", "kind": "allow_always"},
    {"optionId": "allow_project", "name": "Always allow `x`", "kind": "allow_always"},
    {"optionId": "reject_once", "name": "Reject", "kind": "reject_once"},
]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    log = EventLog(tmp_path / "ring", bounds.RING_MIN_BYTES)
    yield log
    log.close()


def question(run_id: str = "run") -> PermissionRequest:
    return PermissionRequest(run_id, {"title": "ls"}, OPTIONS, {})


async def told(log: EventLog) -> list[tuple[str, Any]]:
    with log.reader_after(0) as reader:
        envelopes = [json.loads(record.payload) for record in reader.read(100)]  # pyright: ignore
    return [(e["type"], e["data"].get("outcome")) for e in envelopes]


class Asking:
    """One question under way, in a session with a client or without."""

    def __init__(self, log: EventLog, after_s: float = 3600) -> None:
        self.attendance = Attendance()
        self.requests = PermissionRequests(log, self.attendance, after_s)
        self.question = question()

    async def __aenter__(self) -> "Asking":
        self.task = asyncio.create_task(self.requests.ask(self.question))
        await self.requests.wait_of_run("run")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


@pytest.mark.parametrize(
    ("said", "chosen", "allows"),
    [
        ("allow_once", "allow_once", True),
        ("allow_project", "allow_project", True),
        ("allow_always", "allow_session", True),
        ("reject_once", "reject_once", False),
    ],
)
async def test_an_answer_is_the_id_or_the_kind_of_an_option(
    log: EventLog, said: str, chosen: str, allows: bool
) -> None:
    async with Asking(log) as asking:
        asking.requests.answer(asking.question.request_id, said, "because")
        answer = await asking.task
    assert answer == Answer("selected", chosen, "because")
    assert answer.allows == allows
    assert await told(log) == [
        (events.PERMISSION_REQUESTED, None),
        (events.PERMISSION_RESOLVED, "selected"),
    ]


async def test_what_is_not_offered_is_refused_and_the_question_stays_open(log: EventLog) -> None:
    async with Asking(log) as asking:
        for said in ("reject_always", "yes", ""):
            with pytest.raises(UnknownOption):
                asking.requests.answer(asking.question.request_id, said)
        assert asking.requests.pending() == [asking.question]


async def test_the_first_answer_wins_and_the_second_is_told_so(log: EventLog) -> None:
    async with Asking(log) as asking:
        asking.requests.answer(asking.question.request_id, "reject_once")
        with pytest.raises(NotPending):
            asking.requests.answer(asking.question.request_id, "allow_once")
        assert not (await asking.task).allows
    with pytest.raises(NotPending):
        asking.requests.answer(asking.question.request_id, "allow_once")


async def test_no_option_at_all_is_a_cancel_and_never_a_yes(log: EventLog) -> None:
    async with Asking(log) as asking:
        asking.requests.answer(asking.question.request_id, None)
        assert await asking.task == Answer("cancelled")


async def test_a_question_withdrawn_with_its_run_can_no_longer_be_answered(log: EventLog) -> None:
    async with Asking(log) as asking:
        asking.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking.task
        assert asking.requests.pending() == []
        assert (await told(log))[-1] == (events.PERMISSION_RESOLVED, "cancelled")
        with pytest.raises(NotPending):
            asking.requests.answer(asking.question.request_id, "allow_once")


async def test_without_anybody_to_ask_the_answer_is_that_nobody_was_there(log: EventLog) -> None:
    async with Asking(log, after_s=0) as asking:
        answer = await asking.task
    assert answer == Answer("unattended")
    assert not answer.allows


async def test_a_question_that_code_waits_for_is_given_up_while_clients_are_still_there(
    log: EventLog,
) -> None:
    requests = PermissionRequests(log, Attendance(), 3600)
    asked = question()
    assert await requests.ask(asked, within_s=0.001) == Answer("expired")
    assert (await told(log))[-1] == (events.PERMISSION_RESOLVED, "expired")
    with pytest.raises(NotPending):
        requests.answer(asked.request_id, "allow_once")
    late = asyncio.create_task(requests.ask(again := question(), within_s=30))
    await requests.wait_of_run("run")
    requests.answer(again.request_id, "allow_once")
    assert (await late).allows


async def test_as_long_as_a_client_is_attached_a_question_waits(log: EventLog) -> None:
    async with Asking(log, after_s=0.01) as asking:
        with asking.attendance.attached():
            pass
        assert await asking.task == Answer("unattended")
    attendance = Attendance()
    with attendance.attached():
        alone = asyncio.create_task(attendance.until_alone(0.001))
        done, _ = await asyncio.wait([alone], timeout=0.05)
        assert not done
    await alone


async def test_whoever_waits_for_a_run_learns_of_its_question_and_of_no_other(
    log: EventLog,
) -> None:
    async with Asking(log) as asking:
        assert asking.requests.of_run("another") is None
        assert asking.requests.of_run("run") is asking.question


async def test_every_question_and_its_end_are_told_to_the_core(log: EventLog) -> None:
    asking = Asking(log)
    counts: list[int] = []
    asking.requests.on_change = lambda: counts.append(len(asking.requests.pending()))
    async with asking:
        asking.requests.answer(asking.question.request_id, "reject_once")
        await asking.task
    assert counts == [1, 0]


def test_the_envelope_of_a_question_is_the_event_that_asked() -> None:
    async def make() -> PermissionRequest:
        return question()

    asked = asyncio.run(make())
    asked.seq = 7
    envelope = asked.envelope()
    assert (envelope["seq"], envelope["type"]) == (7, events.PERMISSION_REQUESTED)
    assert envelope["data"]["options"] == OPTIONS
