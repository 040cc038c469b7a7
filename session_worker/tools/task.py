"""The tool `task`: a subagent does a part of the work, in a session and a context of its own."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from session_worker.tools.spec import ToolContext, ToolResult, ToolSpec
from sidecar.protocol.bounds import SUBAGENT_DESCRIPTION_CHARS, SUBAGENTS_MAX

DESCRIPTION = f"""\
Have a subagent do a part of the work. It has the same tools, directory and permissions, but \
sees nothing of this conversation; only its last message comes back. For work that reads much \
and answers shortly, or that goes on side by side: up to {SUBAGENTS_MAX} tasks of one turn run at \
once. Subagents work on the same files: do not give two of them the same ones to change."""


class TaskParams(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    description: str = Field(
        min_length=1,
        max_length=SUBAGENT_DESCRIPTION_CHARS,
        description="3-6 words for the person",
    )
    prompt: str = Field(
        min_length=1,
        description="the whole task: what to find out or to do, where, and what to answer",
    )


async def _task(params: TaskParams, ctx: ToolContext) -> ToolResult:
    return await ctx.delegate(params.prompt, params.description, ctx)


# Without a deadline: a subagent works under the run that asked for it, whose cancel ends it, with
# that run's turns, tokens and dollars; a person may take an hour to answer its question.
TASK = ToolSpec(
    name="task",
    description=DESCRIPTION,
    params=TaskParams,
    handler=_task,
    kind="other",
    read_only=False,
    render=lambda params: params.description,
    family="task",
    side_by_side=True,
)
