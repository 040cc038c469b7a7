"""The list of a session's background jobs, without processes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from session_worker.tools.jobs import Jobs, TooManyJobs
from sidecar.protocol.bounds import JOBS_KEPT, JOBS_MAX


async def no_end() -> list[int]:
    return []


def add(jobs: Jobs, over: asyncio.Event, how: str = "exit 0") -> str:
    """A job that lasts until `over`."""

    async def life() -> str:
        await over.wait()
        if how == "lost":
            raise OSError("no such file")
        return how

    return jobs.add("sleep", Path("output"), "", life, no_end).job_id


async def test_news_of_each_end_are_given_once_and_not_of_what_the_model_saw_itself() -> None:
    jobs, over = Jobs(), asyncio.Event()
    changes: list[int] = []
    watching = asyncio.create_task(jobs.watch_all(lambda: changes.append(len(jobs.running()))))
    for how in ("exit 3", "lost", "ended: more than 64MB of output", "seen"):
        add(jobs, over, how)
    await asyncio.sleep(0)
    assert jobs.take_news() == []
    running = jobs.running()
    over.set()
    for job in running:
        await job.ended.wait()
    jobs.mark_told(running[-1])
    assert jobs.take_news() == [
        "job-1 (`sleep`) has ended: exit 3",
        "job-2 (`sleep`) has ended: lost: no such file",
        "job-3 (`sleep`) has ended: more than 64MB of output",
    ]
    assert jobs.take_news() == []
    assert changes[-1] == 0
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching


async def test_running_jobs_are_counted_and_kept_and_the_oldest_that_ended_are_forgotten() -> None:
    jobs, over, never = Jobs(), asyncio.Event(), asyncio.Event()
    watching = asyncio.create_task(jobs.watch_all(lambda: None))
    lasting = add(jobs, never)
    over.set()
    for _ in range(JOBS_KEPT + 3):
        job = jobs.find(add(jobs, over))
        assert job
        await job.ended.wait()
    assert len(jobs.known()) == JOBS_KEPT
    assert jobs.known()[0] == lasting
    assert jobs.find("job-2") is None
    for _ in range(JOBS_MAX - 1):
        jobs.check_room()
        add(jobs, never)
    with pytest.raises(TooManyJobs):
        jobs.check_room()
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
