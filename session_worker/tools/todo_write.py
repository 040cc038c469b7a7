"""The `todo_write` tool: the agent's plan, for people to see. Touches nothing else."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from session_worker.tools.spec import ToolContext, ToolResult, ToolSpec
from session_worker.tools.truncate import json_safe

TODOS_MAX = 100
"""Entries of a plan: a longer one is not read by anybody."""
TODO_CHARS = 1_000
"""Of one entry: every change of a plan is an event with all of it."""

DESCRIPTION = """\
Write your plan: a short list that the user sees. Each call replaces the whole list. At most one \
entry is in_progress. Mark an entry completed as soon as it is done."""


class Todo(BaseModel):
    model_config = ConfigDict(extra="forbid")

    content: str = Field(min_length=1, max_length=TODO_CHARS)
    status: Literal["pending", "in_progress", "completed"]


class TodoParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    todos: list[Todo] = Field(max_length=TODOS_MAX)


async def _run(params: TodoParams, ctx: ToolContext) -> ToolResult:
    counts = Counter(todo.status for todo in params.todos)
    if counts["in_progress"] > 1:
        return ToolResult(
            f"{counts['in_progress']} entries are in_progress, at most one may be; "
            "the plan is unchanged",
            is_error=True,
        )
    plan = [
        {"content": json_safe(todo.content), "priority": "medium", "status": todo.status}
        for todo in params.todos
    ]
    return ToolResult(_summary(params), plan=plan)


def _summary(params: TodoParams) -> str:
    if not params.todos:
        return "the plan is empty"
    done = sum(todo.status == "completed" for todo in params.todos)
    return f"{done} of {len(params.todos)} completed"


TODO_WRITE = ToolSpec(
    name="todo_write",
    description=DESCRIPTION,
    params=TodoParams,
    handler=_run,
    kind="think",
    read_only=True,
    render=lambda params: f"plan: {_summary(params)}",
)
