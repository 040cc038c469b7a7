"""Answers the tool calls of one turn: finds the tools, checks their input, runs them.

Called by the agent loop once per turn. Never raises anything but a cancellation: whatever goes
wrong with a call becomes its result.
"""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from session_worker.tools.spec import ToolContext, ToolResult, ToolSpec
from session_worker.tools.truncate import json_safe, shorten
from sidecar.protocol.bounds import (
    ERROR_TEXT_CHARS,
    INVALID_JSON_CHARS,
    PARALLEL_TOOLS,
    TOOL_RESULT_CHARS,
)

RESULT_HEAD_CHARS = TOOL_RESULT_CHARS * 3 // 10
RESULT_TAIL_CHARS = TOOL_RESULT_CHARS - RESULT_HEAD_CHARS
NAMES_SHOWN = 20
"""Tools named to a model that asked for one there is not, the likeliest first."""

ToolUse = Mapping[str, Any]
"""A `tool_use` block: `id`, `name`, `input`."""

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """A call that may run: its tool exists and its input is valid."""

    id: str
    spec: ToolSpec[Any]
    params: BaseModel


async def dispatch(
    uses: Sequence[ToolUse],
    tools: Mapping[str, ToolSpec[Any]],
    make_context: Callable[[str], ToolContext],
    permit: Callable[[ToolCall], Awaitable[str | None]],
    on_start: Callable[[ToolCall], Awaitable[None]],
    on_end: Callable[[ToolUse, ToolResult], None],
) -> list[ToolResult]:
    """One result per call, in the order of the calls.

    Read-only calls that follow each other share, at most PARALLEL_TOOLS at once; any other runs
    alone, after all before it and before all behind it. When a call's turn comes, `permit` says
    why it may not run, or None; then `on_start` is awaited; if either raises, the handler does
    not run. `on_end` is called once per call, as it ends, and nothing is awaited between a
    handler's return and it: a caller that is cancelled knows every call that has finished. The
    others are cancelled and awaited before the cancellation leaves.
    """
    results: dict[int, ToolResult] = {}
    slots = asyncio.Semaphore(PARALLEL_TOOLS)

    def end(index: int, result: ToolResult) -> ToolResult:
        try:
            on_end(uses[index], result)
        except Exception:
            _logger.exception("on_end of a tool call failed")
        return result

    async def run(index: int, call: ToolCall) -> ToolResult:
        async with slots:
            return end(index, await _answer(call, make_context, permit, on_start))

    # All calls are known now, so these batches are a first-in-first-out read/write lock.
    batches: list[list[tuple[int, ToolCall]]] = []
    for index, use in enumerate(uses):
        call = _check(use, tools)
        if isinstance(call, ToolResult):
            results[index] = end(index, call)
        elif batches and call.spec.read_only and batches[-1][-1][1].spec.read_only:
            batches[-1].append((index, call))
        else:
            batches.append([(index, call)])
    for batch in batches:
        async with asyncio.TaskGroup() as group:
            tasks = {index: group.create_task(run(index, call)) for index, call in batch}
        results |= {index: task.result() for index, task in tasks.items()}
    return [results[index] for index in range(len(uses))]


async def _answer(
    call: ToolCall,
    make_context: Callable[[str], ToolContext],
    permit: Callable[[ToolCall], Awaitable[str | None]],
    on_start: Callable[[ToolCall], Awaitable[None]],
) -> ToolResult:
    try:
        if reason := await permit(call):
            return _error(reason)
        await on_start(call)
        result = await call.spec.handler(call.params, make_context(call.id))
        content = shorten(json_safe(result.content), RESULT_HEAD_CHARS, RESULT_TAIL_CHARS)
        return dataclasses.replace(result, content=content)
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task and task.cancelling():
            raise  # otherwise not we were cancelled, but something the handler awaited
        _logger.exception("tool %s failed", call.spec.name)
        return _failure(call.spec.name, error)


def _check(use: ToolUse, tools: Mapping[str, ToolSpec[Any]]) -> ToolCall | ToolResult:
    try:
        name: str = use["name"]
        given = use["input"]
        if name not in tools:
            likely = difflib.get_close_matches(name, tools, NAMES_SHOWN, cutoff=0)
            more = ", …" if len(tools) > NAMES_SHOWN else ""
            return _error(f"there is no tool {name!r}, only: {', '.join(likely)}{more}")
        match given:
            case {"INVALID_JSON": str(raw)} if len(given) == 1:
                return _error(f"{name} was not run, {_why_invalid(raw)}")
            case _:
                return ToolCall(use["id"], tools[name], tools[name].params.model_validate(given))
    except ValidationError as error:
        reasons = (
            f"{'.'.join(map(str, item['loc'])) or 'input'}: {item['msg']}"
            for item in error.errors(include_url=False)
        )
        return _error(f"{use['name']} was not run, its input is invalid: {'; '.join(reasons)}")
    except Exception as error:
        _logger.exception("checking a tool call failed")
        return _failure(str(use.get("name")), error)


def _why_invalid(raw: str) -> str:
    """What is wrong with the JSON a model wrote, and the text around it."""
    reason, at = "not one JSON object, or with NaN, Infinity or half a character in it", 0
    try:
        json.loads(raw)
    except json.JSONDecodeError as error:
        reason, at = str(error), error.pos
    except RecursionError:
        reason = "nested too deeply"
    start = max(0, at - INVALID_JSON_CHARS // 2)
    return f"its input is invalid JSON: {reason}; near: {raw[start : start + INVALID_JSON_CHARS]}"


def _failure(name: str, error: BaseException) -> ToolResult:
    return _error(f"{name} failed: {type(error).__name__}: {error}")


def _error(text: str) -> ToolResult:
    return ToolResult(json_safe(text[:ERROR_TEXT_CHARS]), is_error=True)
