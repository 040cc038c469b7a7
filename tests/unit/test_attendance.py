"""Whether anybody is there to ask, however many questions wait to know it."""

from __future__ import annotations

import asyncio

import pytest

from session_worker import attendance
from session_worker.attendance import Attendance
from sidecar.protocol import bounds

TICKS = 5


class Clock:
    """Counts the naps of whoever waits, and lets time fly."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.naps = 0
        self._sleep = asyncio.sleep
        monkeypatch.setattr(attendance.asyncio, "sleep", self._nap)

    async def _nap(self, _: float) -> None:
        self.naps += 1
        await self._sleep(0)

    async def tick(self) -> None:
        await self._sleep(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def alone(attendance: Attendance) -> None:
    await attendance.until_alone(TICKS * bounds.ATTENDANCE_TICK_S)


@pytest.mark.parametrize("questions", [1, 3])
async def test_each_question_waits_its_own_time(clock: Clock, questions: int) -> None:
    nobody = Attendance()
    await asyncio.gather(*(alone(nobody) for _ in range(questions)))
    assert clock.naps == TICKS * questions


async def test_a_question_that_comes_later_does_not_prolong_an_earlier_one(clock: Clock) -> None:
    nobody = Attendance()
    first = asyncio.create_task(alone(nobody))
    for _ in range(TICKS - 1):
        await clock.tick()
    second = asyncio.create_task(alone(nobody))
    await first
    assert not second.done()
    await second
    assert clock.naps == 2 * TICKS


async def test_whoever_looked_or_was_attached_is_waited_for_anew(clock: Clock) -> None:
    somebody = Attendance()
    waiting = asyncio.create_task(alone(somebody))
    for _ in range(3):
        await clock.tick()
    somebody.polled()
    await clock.tick()
    with somebody.attached():
        for _ in range(3 * TICKS):
            await clock.tick()
        assert not waiting.done()
    before = clock.naps
    await waiting
    assert clock.naps - before >= TICKS


async def test_who_has_no_time_is_alone_at_once_unless_somebody_is_attached(clock: Clock) -> None:
    await Attendance().until_alone(0)
    assert clock.naps == 0
    somebody = Attendance()
    with somebody.attached():
        waiting = asyncio.create_task(somebody.until_alone(0))
        for _ in range(TICKS):
            await clock.tick()
        assert not waiting.done()
    await waiting
