"""Background jobs: commands that go on while the agent does, until the session ends.

Started by `bash` with `run_in_background`, or left running by a command that ended. Nothing here
waits: one task of the worker (`watch_all`) sees every job to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from sidecar.protocol.bounds import JOBS_KEPT, JOBS_MAX

Life = Callable[[], Awaitable[str]]
"""Waits for the end of a job, and says how that went. What it has begun ends with it."""


@dataclass
class Job:
    """`prefix` is what of its output is ours and not shown. `end` begins its end, and answers the
    pids that would not go. `how` it ended is set with `ended`."""

    job_id: str
    title: str
    output: Path
    prefix: str
    life: Life
    end: Callable[[], Awaitable[list[int]]]
    how: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class TooManyJobs(Exception):
    """`JOBS_MAX` jobs run already."""


class Jobs:
    """One session's. Finished ones are kept for a while, so that their output can be asked for."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._new: asyncio.Queue[Job] = asyncio.Queue()
        self._count = 0
        self._news: dict[str, str] = {}

    def running(self) -> list[Job]:
        return [job for job in self._jobs.values() if not job.ended.is_set()]

    def known(self) -> list[str]:
        return list(self._jobs)

    def find(self, job_id: str) -> Job | None:
        return self._jobs.get(job_id)

    def check_room(self) -> None:
        """Raises `TooManyJobs`."""
        if len(self.running()) >= JOBS_MAX:
            raise TooManyJobs

    def add(
        self,
        title: str,
        output: Path,
        prefix: str,
        life: Life,
        end: Callable[[], Awaitable[list[int]]],
    ) -> Job:
        self._count += 1
        job = Job(f"job-{self._count}", title, output, prefix, life, end)
        self._jobs[job.job_id] = job
        finished = [old for old in self._jobs.values() if old.ended.is_set()]
        for old in finished[: max(0, len(self._jobs) - JOBS_KEPT)]:
            del self._jobs[old.job_id]
        self._new.put_nowait(job)
        return job

    def take_news(self) -> list[str]:
        """What the model has not been told: which jobs have ended, and how."""
        news, self._news = list(self._news.values()), {}
        return news

    def mark_told(self, job: Job) -> None:
        """The model learns of its end at this moment."""
        self._news.pop(job.job_id, None)

    async def watch_all(self, on_change: Callable[[], None]) -> None:
        """Never returns. `on_change` is called when a job has begun or ended."""
        async with asyncio.TaskGroup() as group:
            while True:
                job = await self._new.get()
                on_change()
                group.create_task(self._watch(job, on_change))

    async def _watch(self, job: Job, on_change: Callable[[], None]) -> None:
        try:
            job.how = (await job.life()).removeprefix("ended: ")
        except OSError as error:
            job.how = f"lost: {error}"
        job.ended.set()
        self._news[job.job_id] = f"{job.job_id} (`{job.title}`) has ended: {job.how}"
        on_change()
