"""Background jobs: commands that go on while the agent does, until the session ends.

Started by `bash` with `run_in_background`, or left running by a command that ended. Nothing here
waits: one task of the worker (`watch_all`) sees every job to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from sidecar.protocol.bounds import JOBS_KEPT, JOBS_MAX


@dataclass
class Job:
    """`pgid` is the process group that it is. `how` it ended is set with `ended`."""

    job_id: str
    title: str
    pgid: int
    output: Path
    life: Callable[[], Coroutine[None, None, str]]
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
        self._news: list[str] = []

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
        self, title: str, pgid: int, output: Path, life: Callable[[], Coroutine[None, None, str]]
    ) -> Job:
        """What `life` begins ends with the job, and says how that went."""
        self._count += 1
        job = Job(f"job-{self._count}", title, pgid, output, life)
        self._jobs[job.job_id] = job
        finished = [old for old in self._jobs.values() if old.ended.is_set()]
        for old in finished[: max(0, len(self._jobs) - JOBS_KEPT)]:
            del self._jobs[old.job_id]
        self._new.put_nowait(job)
        return job

    def take_news(self) -> list[str]:
        """What the model has not been told: which jobs have ended, and how."""
        news, self._news = self._news, []
        return news

    async def watch_all(self, on_change: Callable[[], None]) -> None:
        """Never returns. `on_change` is called when a job has begun or ended."""
        async with asyncio.TaskGroup() as group:
            while True:
                job = await self._new.get()
                on_change()
                group.create_task(self._watch(job, on_change))

    async def _watch(self, job: Job, on_change: Callable[[], None]) -> None:
        try:
            job.how = await job.life()
        except OSError as error:
            job.how = f"lost: {error}"
        job.ended.set()
        self._news.append(f"{job.job_id} (`{job.title}`) has ended: {job.how}")
        on_change()
