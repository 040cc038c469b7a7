"""Answers the tool calls of one turn: finds the tools, checks their input, runs them.

Called by the toolbox once per turn. Never raises anything but a cancellation: whatever goes wrong
with a call becomes its result.
"""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from session_worker.tools.overflow import Room
from session_worker.tools.spec import ToolContext, ToolResult, ToolSpec
from session_worker.tools.truncate import json_safe
from sidecar.protocol.bounds import ERROR_TEXT_CHARS, INVALID_JSON_CHARS, PARALLEL_TOOLS

NAMES_SHOWN = 20
"""Tools named to a model that asked for one there is not, the likeliest first."""

ToolUse = Mapping[str, Any]
"""A `tool_use` block: `id`, `name`, `input`."""

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """A call that may run: its tool exists and its input is valid. `granted` are the canonical
    paths outside the session's directories that somebody allowed it; `context` is what the model
    should read with the result."""

    id: str
    spec: ToolSpec[Any]
    params: BaseModel
    granted: frozenset[Path] = frozenset()
    context: str = ""

    def shown(self, root: Path) -> dict[str, Any]:
        """As ACP-C shows it to people; relative paths start at `root`."""
        return {
            "title": self.spec.render(self.params),
            "kind": self.spec.kind,
            "locations": [{"path": str(root / path)} for path in self.spec.paths(self.params)],
        }


@dataclasses.dataclass(frozen=True)
class Steps:
    """What a call passes besides its handler.

    `admit` answers the call to run, or why it may not; then `on_start` is awaited; if either
    raises, the handler does not run. `after` may add to its result. `on_end` is called once per
    call, as it ends: nothing is awaited between a handler's return and it but `after`, and a
    cancellation there ends the call with the handler's own result. So a caller that is cancelled
    knows every call that has happened.
    """

    context: Callable[[ToolCall], ToolContext]
    admit: Callable[[ToolCall], Awaitable[ToolCall | str]]
    on_start: Callable[[ToolCall], Awaitable[None]]
    after: Callable[[ToolCall, ToolResult], Awaitable[ToolResult]]
    on_end: Callable[[ToolUse, ToolResult], None]


async def dispatch(
    uses: Sequence[ToolUse], tools: Mapping[str, ToolSpec[Any]], steps: Steps
) -> list[ToolResult]:
    """One result per call, in the order of the calls.

    Read-only calls that follow each other share, at most PARALLEL_TOOLS at once; any other runs
    alone, after all before it and before all behind it. When cancelled, the calls under way are
    cancelled and awaited before the cancellation leaves.
    """
    results: dict[int, ToolResult] = {}
    slots = asyncio.Semaphore(PARALLEL_TOOLS)
    room = Room()

    def end(index: int, result: ToolResult) -> ToolResult:
        try:
            steps.on_end(uses[index], result)
        except Exception:
            _logger.exception("on_end of a tool call failed")
        return result

    async def run(index: int, call: ToolCall) -> ToolResult:
        async with slots:
            admitted = await _admitted(call, steps)
            if isinstance(admitted, ToolResult):
                return end(index, admitted)
            result = await _run(admitted, steps, room)
            try:
                result = await _after(admitted, result, steps)
            finally:
                end(index, result)
            return result

    # All calls are known now, so these batches are a first-in-first-out read/write lock.
    batches: list[list[tuple[int, ToolCall]]] = []
    for index, use in enumerate(uses):
        call = check(use, tools)
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


async def _admitted(call: ToolCall, steps: Steps) -> ToolCall | ToolResult:
    try:
        admitted = await steps.admit(call)
        if isinstance(admitted, str):
            return _error(admitted)
        await steps.on_start(admitted)
        return admitted
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        _raise_own(error)
        _logger.exception("tool %s was not admitted", call.spec.name)
        return _failure(call.spec.name, error)


async def _run(call: ToolCall, steps: Steps, room: Room) -> ToolResult:
    spec = call.spec
    deadline = asyncio.timeout(spec.timeout_s)
    try:
        context = steps.context(call)
        async with deadline:
            result = await spec.handler(call.params, context)
        return room.fit(result, spec.max_chars, context)
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        if deadline.expired():
            doubt = f"; {error.__cause__}" if str(error.__cause__ or "") else ""
            return _error(f"{spec.name} was ended: it took longer than {spec.timeout_s:g} s{doubt}")
        _raise_own(error)
        _logger.exception("tool %s failed", spec.name)
        return _failure(spec.name, error)


async def _after(call: ToolCall, result: ToolResult, steps: Steps) -> ToolResult:
    try:
        return await steps.after(call, result)
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        _raise_own(error)
        _logger.exception("what follows tool %s failed", call.spec.name)
        return result


def check(use: ToolUse, tools: Mapping[str, ToolSpec[Any]]) -> ToolCall | ToolResult:
    """The call that a model asked for, or what to tell it."""
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
                spec = tools[name]
                params = spec.params.model_validate(given)
                if wrong := spec.invalid(params):
                    return _error(f"{name} was not run, its input is invalid: {wrong}")
                return ToolCall(use["id"], spec, params)
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


def _raise_own(error: BaseException) -> None:
    """Not what something that a handler awaited was cancelled with, but our own cancellation."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task and task.cancelling():
        raise error


def _failure(name: str, error: BaseException) -> ToolResult:
    return _error(f"{name} failed: {type(error).__name__}: {error}")


def _error(text: str) -> ToolResult:
    return ToolResult(json_safe(text[:ERROR_TEXT_CHARS]), is_error=True)
