"""The todo_write tool: the whole plan each time, for clients to show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from session_worker.tools.todo_write import TODO_CHARS, TODO_WRITE, TODOS_MAX
from tests.support.tool_bench import ToolBench


def todo(status: str, content: str = "x") -> dict[str, str]:
    return {"content": content, "status": status}


@pytest.fixture
def bench(tmp_path: Path) -> ToolBench:
    return ToolBench(tmp_path)


async def test_the_plan_is_what_was_written(bench: ToolBench) -> None:
    todos = [todo("completed", "a"), todo("in_progress", "b\0"), todo("pending", "c")]
    result = await bench.call(TODO_WRITE, todos=todos)
    assert result.content == "1 of 3 completed"
    assert result.plan == [
        {"content": "a", "priority": "medium", "status": "completed"},
        {"content": "b\u2400", "priority": "medium", "status": "in_progress"},
        {"content": "c", "priority": "medium", "status": "pending"},
    ]


async def test_an_empty_plan_clears_the_last(bench: ToolBench) -> None:
    result = await bench.call(TODO_WRITE, todos=[])
    assert (result.content, result.plan) == ("the plan is empty", [])


async def test_two_entries_in_progress_change_nothing(bench: ToolBench) -> None:
    result = await bench.call(TODO_WRITE, todos=[todo("in_progress")] * 2)
    assert (result.is_error, result.plan) == (True, None)
    assert str(result.content).startswith("2 entries are in_progress")


@pytest.mark.parametrize(
    "todos",
    [
        [todo("done")],
        [todo("pending", "")],
        [todo("pending", "x" * (TODO_CHARS + 1))],
        [todo("pending")] * (TODOS_MAX + 1),
        [todo("pending") | {"priority": "high"}],
    ],
)
def test_what_is_no_plan_is_refused(todos: list[Any]) -> None:
    with pytest.raises(ValidationError):
        TODO_WRITE.params.model_validate({"todos": todos})


def test_a_plan_needs_no_permission() -> None:
    assert TODO_WRITE.family is None and TODO_WRITE.read_only
