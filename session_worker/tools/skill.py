"""The `skill` tool: instructions for a kind of task, read when they are needed.

Called by the dispatcher. Never starts anything of a skill: its text may ask the model to.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from session_worker.project.reading import Refused
from session_worker.project.skills import Skill
from session_worker.tools.spec import ToolContext, ToolResult, ToolSpec
from session_worker.tools.truncate import json_safe, title

ARGUMENTS = "$ARGUMENTS"
"""Where a skill wants its arguments; they are put at the end of one that does not say."""


class SkillParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(description="name of a skill, as it is listed")
    args: str | None = Field(default=None, description="what the skill is to work on")


async def _run(params: SkillParams, ctx: ToolContext) -> ToolResult:
    skill = ctx.skills.get(params.name)
    if skill is None:
        known = f"only: {', '.join(ctx.skills)}" if ctx.skills else "and no other"
        return ToolResult(json_safe(f"there is no skill {params.name!r}, {known}"), is_error=True)
    try:
        return ToolResult(loaded(skill, params.args or ""))
    except Refused as error:
        return ToolResult(json_safe(f"the skill cannot be read: {error}"), is_error=True)


def loaded(skill: Skill, args: str) -> str:
    """What the model reads of a skill that is used. Raises Refused."""
    body = skill.body()
    if ARGUMENTS in body:
        body = body.replace(ARGUMENTS, args)
    elif args:
        body += f"\n\nArguments: {args}"
    head = [
        f"Skill {skill.name}; its files are in {skill.file.parent}, relative paths start there."
    ]
    if skill.compatibility:
        head.append(f"It needs: {skill.compatibility}")
    return json_safe("\n".join([*head, "", body]))


def _title(params: SkillParams) -> str:
    return title(f"{params.name} {params.args or ''}")


SKILL = ToolSpec(
    name="skill",
    description="Load a skill that the system prompt lists: instructions for a kind of task.",
    params=SkillParams,
    handler=_run,
    kind="read",
    read_only=True,
    render=_title,
)
