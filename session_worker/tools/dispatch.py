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
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from session_worker.blocks import calling_code
from session_worker.tools.for_code import in_text
from session_worker.tools.overflow import Room
from session_worker.tools.spec import ToolContext, ToolResult, ToolSpec
from session_worker.tools.truncate import json_safe
from sidecar.protocol.bounds import (
    CODE_CALL_GRACE_S,
    CODE_CALL_S,
    ERROR_TEXT_CHARS,
    INVALID_JSON_CHARS,
    PARALLEL_TOOLS,
    TOOL_NAMES_SHOWN,
)

ToolUse = Mapping[str, Any]
"""A `tool_use` block: `id`, `name`, `input`, perhaps `caller`."""

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """A call that may run: its tool exists and its input is valid. `granted` are the canonical
    paths outside the session's directories that somebody allowed it; `context` is what the model
    should read with the result. `until` is the loop time by which code that makes the call must
    have its result; None for calls that no code makes."""

    id: str
    spec: ToolSpec[Any]
    params: BaseModel
    granted: frozenset[Path] = frozenset()
    context: str = ""
    until: float | None = None

    @property
    def shares(self) -> str | None:
        """Calls with the same word here run side by side: those that only read, those of a tool
        that is made for it, and those of code, which asked for them at once and would be kept
        waiting by a turn each."""
        if self.until is not None:
            return "code"
        if self.spec.read_only:
            return "reads"
        return self.spec.name if self.spec.side_by_side else None

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

    Read-only calls that follow each other share, at most PARALLEL_TOOLS at once, and so do those of
    code, which all have their result in CODE_CALL_S, and those of one tool that is `side_by_side`;
    any other runs alone, after all before it and before all behind it. When cancelled, the calls
    under way are cancelled and awaited before the cancellation leaves.
    """
    results: dict[int, ToolResult] = {}
    slots = asyncio.Semaphore(PARALLEL_TOOLS)
    edits = asyncio.Lock()  # two edits of one file at once would be one
    room = Room()
    until = asyncio.get_running_loop().time() + CODE_CALL_S

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
            async with edits if admitted.spec.family == "edit" else nullcontext():
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
            continue
        if calling_code(use) is not None:
            call = dataclasses.replace(call, until=until)
        if batches and call.shares and call.shares == batches[-1][-1][1].shares:
            batches[-1].append((index, call))
        else:
            batches.append([(index, call)])
    for batch in batches:
        async with asyncio.TaskGroup() as group:
            tasks = {index: group.create_task(run(index, call)) for index, call in batch}
        results |= {index: task.result() for index, task in tasks.items()}
    return [results[index] for index in range(len(uses))]


async def _admitted(call: ToolCall, steps: Steps) -> ToolCall | ToolResult:
    deadline = asyncio.timeout_at(call.until)
    try:
        async with deadline:
            admitted = await steps.admit(call)
            if isinstance(admitted, str):
                return _error(admitted)
            await steps.on_start(admitted)
            return admitted
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        if deadline.expired():
            return _error(f"{call.spec.name} was not run: the code that calls it waits no longer")
        _raise_own(error)
        _logger.exception("tool %s was not admitted", call.spec.name)
        return _failure(call.spec.name, error)


async def _run(call: ToolCall, steps: Steps, room: Room) -> ToolResult:
    spec = call.spec
    timeout_s, why = _time(call)
    deadline = asyncio.timeout(timeout_s)
    try:
        context = steps.context(call)
        async with deadline:
            result = await spec.handler(call.params, context)
        if call.until is not None:
            result = await asyncio.to_thread(in_text, result, context)
        return room.fit(result, spec.max_chars, context)
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        if deadline.expired():
            doubt = f"; {error.__cause__}" if str(error.__cause__ or "") else ""
            return _error(f"{spec.name} was ended: {why}{doubt}")
        _raise_own(error)
        _logger.exception("tool %s failed", spec.name)
        return _failure(spec.name, error)


def _time(call: ToolCall) -> tuple[float | None, str]:
    """How long its handler may take, and what to say if it takes longer."""
    own_s = call.spec.timeout_s
    if call.until is not None:
        left_s = call.until + CODE_CALL_GRACE_S - asyncio.get_running_loop().time()
        if own_s is None or left_s < own_s:
            return left_s, f"code that calls a tool waits {CODE_CALL_S:g} s for it, no longer"
    return own_s, f"it took longer than {own_s:g} s" if own_s is not None else ""


async def _after(call: ToolCall, result: ToolResult, steps: Steps) -> ToolResult:
    until = None if call.until is None else call.until + CODE_CALL_GRACE_S
    try:
        async with asyncio.timeout_at(until):
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
            likely = difflib.get_close_matches(name, tools, TOOL_NAMES_SHOWN, cutoff=0)
            more = ", …" if len(tools) > TOOL_NAMES_SHOWN else ""
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
