"""The tools `job_output` and `job_stop`: what the model may do with its background jobs."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from pydantic import BaseModel, ConfigDict, Field

from session_worker.tools.jobs import Job
from session_worker.tools.spec import ToolContext, ToolResult, ToolSpec
from session_worker.tools.truncate import excerpt, json_safe
from sidecar.protocol.bounds import (
    BASH_KILL_S,
    BASH_RESULT_CHARS,
    BASH_TERM_GRACE_S,
    JOB_BLOCK_MAX_S,
)

_HEAD_CHARS = 0
"""The end of a job's output says where it stands."""


class JobOutputParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    job_id: str
    block_s: float = Field(
        default=0,
        ge=0,
        le=JOB_BLOCK_MAX_S,
        description=f"wait so long for its end, 0-{JOB_BLOCK_MAX_S}, default 0",
    )


class JobStopParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    job_id: str


async def _output(params: JobOutputParams, ctx: ToolContext) -> ToolResult:
    job = ctx.jobs.find(params.job_id)
    if job is None:
        return _unknown(params.job_id, ctx)
    with suppress(TimeoutError):
        async with asyncio.timeout(params.block_s):
            await job.ended.wait()
    return _state(job, ctx)


async def _stop(params: JobStopParams, ctx: ToolContext) -> ToolResult:
    job = ctx.jobs.find(params.job_id)
    if job is None:
        return _unknown(params.job_id, ctx)
    if not job.ended.is_set():  # else its group may be another's by now
        if left := await job.end():
            return ToolResult(f"still there: pid {', '.join(map(str, left))}", is_error=True)
        await job.ended.wait()
    return _state(job, ctx)


def _state(job: Job, ctx: ToolContext) -> ToolResult:
    """The end of a job's output, and whether it runs."""
    try:
        fd = os.open(job.output, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        text, cut = json_safe(f"(its output cannot be read: {error})"), False
    else:
        try:
            shown = excerpt(fd, _HEAD_CHARS, BASH_RESULT_CHARS)
        finally:
            os.close(fd)
        text = shown.text.replace(job.prefix, "").rstrip("\n") or "(no output)"
        cut = shown.cut
    state = "running"
    if job.ended.is_set():
        state = f"ended: {job.how}"
        ctx.jobs.mark_told(job)
    whole = f" · full: {job.output}" if cut else ""
    return ToolResult(
        f"{text}\n[{job.job_id} · {state}{json_safe(whole)}]",
        meta={"job_id": job.job_id, "running": not job.ended.is_set()},
    )


def _unknown(job_id: str, ctx: ToolContext) -> ToolResult:
    known = ", ".join(ctx.jobs.known()) or "none"
    return ToolResult(
        json_safe(
            f"there is no job {job_id!r}, only: {known}. Jobs end with their session's worker"
        ),
        is_error=True,
    )


JOB_OUTPUT = ToolSpec(
    name="job_output",
    description="The end of a background job's output so far, and whether it still runs.",
    params=JobOutputParams,
    handler=_output,
    kind="read",
    read_only=True,
    render=lambda params: f"output of {params.job_id}",
    timeout_s=JOB_BLOCK_MAX_S + 5,
)
JOB_STOP = ToolSpec(
    name="job_stop",
    description="End a background job and all its processes.",
    params=JobStopParams,
    handler=_stop,
    kind="execute",
    read_only=False,
    render=lambda params: f"stop {params.job_id}",
    timeout_s=BASH_TERM_GRACE_S + BASH_KILL_S + 5,
)
