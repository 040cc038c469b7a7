"""The session's tools as the loop uses them: schemas out, tool_use blocks in, events told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from session_worker import updates
from session_worker.blocks import Block, calling_code, tool_result
from session_worker.compaction import estimate
from session_worker.core import SessionCore
from session_worker.gate import Gate, tool_payload
from session_worker.hooks import Hooks
from session_worker.loop_guard import reminder
from session_worker.project.nested import NestedInstructions
from session_worker.project.skills import Skill
from session_worker.tools.bash import BASH
from session_worker.tools.dispatch import Steps, ToolCall, ToolUse, dispatch
from session_worker.tools.edit_file import EDIT_FILE
from session_worker.tools.glob import GLOB
from session_worker.tools.grep import GREP
from session_worker.tools.job_tools import JOB_OUTPUT, JOB_STOP
from session_worker.tools.jobs import Jobs
from session_worker.tools.list_dir import LIST_DIR
from session_worker.tools.read_file import READ_FILE
from session_worker.tools.schema import tool_schema
from session_worker.tools.skill import SKILL
from session_worker.tools.spec import Shell, ToolContext, ToolResult, ToolSpec
from session_worker.tools.task import TASK
from session_worker.tools.todo_write import TODO_WRITE
from session_worker.tools.web_fetch import WEB_FETCH
from session_worker.tools.write_file import WRITE_FILE
from sidecar.protocol import events

TOOLS: Sequence[ToolSpec[Any]] = (
    BASH,
    READ_FILE,
    WRITE_FILE,
    EDIT_FILE,
    GLOB,
    GREP,
    LIST_DIR,
    TODO_WRITE,
    JOB_OUTPUT,
    JOB_STOP,
    SKILL,
    TASK,
    WEB_FETCH,
)
BY_NAME = {spec.name: spec for spec in TOOLS}
SCHEMAS = [tool_schema(spec) for spec in TOOLS]
"""Made once, before the fork: pydantic takes 10 ms and 2 MB for it in every worker else."""


class Toolbox:
    """One session's. `shell` and `jobs` are what its commands leave behind."""

    def __init__(
        self,
        core: SessionCore,
        gate: Gate,
        hooks: Hooks,
        nested: NestedInstructions,
        context: ToolContext,
        specs: dict[str, ToolSpec[Any]],
    ) -> None:
        """Every call gets `context`, with its own id and outputs. `specs` may grow: a tool that was
        ever offered is known for good, and says itself that it is gone."""
        self._core = core
        self._gate = gate
        self._hooks = hooks
        self._nested = nested
        self._base = context
        self._specs = specs
        self._untold: list[str] = []
        context.spill_dir.mkdir(mode=0o700, exist_ok=True)

    def offer(self, more: Sequence[ToolSpec[Any]]) -> list[dict[str, Any]]:
        """The schemas of our own tools and of `more`, for the model; calls of them will run."""
        ours = [schema for schema in SCHEMAS if schema["name"] in self._specs]
        self._specs.update({spec.name: spec for spec in more})
        return [*ours, *map(tool_schema, more)]

    @property
    def jobs(self) -> Jobs:
        return self._base.jobs

    @property
    def shell(self) -> Shell:
        return self._base.shell

    @property
    def skills(self) -> Mapping[str, Skill]:
        return self._base.skills

    def take_untold(self) -> list[str]:
        """What the model should know with results that went to code, each once."""
        untold, self._untold = list(dict.fromkeys(self._untold)), []
        return untold

    async def run(
        self, calls: list[Block], counts: Sequence[int], run_id: str, finished: dict[str, Block]
    ) -> None:
        """Run `calls`; their results appear in `finished`, by call id, as they end. `counts` is
        how often in a row each was asked for.

        So a caller that is cancelled still knows what has happened.
        """
        repeats = {call["id"]: count for call, count in zip(calls, counts, strict=True)}
        start = self.shell.cwd
        # commands of code run at once: each begins where they were judged, not where another ended
        shells = {call["id"]: Shell(start) for call in calls if calling_code(call) is not None}

        def emit(update: updates.Update) -> None:
            self._core.log.emit(events.UPDATE, update, run_id)

        async def admit(call: ToolCall) -> ToolCall | str:
            return await self._gate.admit(call, run_id, repeats[call.id])

        async def after(call: ToolCall, result: ToolResult) -> ToolResult:
            return await self._after(call, result, repeats[call.id])

        async def on_start(call: ToolCall) -> None:
            if not call.spec.read_only:
                self._core.transcript.append(
                    "tool_intent", sync=True, run_id=run_id, tool_use_id=call.id
                )
            emit(updates.tool_call_started(call.id, call.shown(self._base.root)))

        def on_end(use: ToolUse, result: ToolResult) -> None:
            finished[use["id"]] = tool_result(use["id"], result.content, is_error=result.is_error)
            kept_out = estimate(result.content) if use["id"] in shells else None
            emit(updates.tool_call_ended(use["id"], result, kept_out))
            if result.plan is not None:
                emit(updates.plan(result.plan))

        for call in calls:
            spec = self._specs.get(call["name"])
            emit(updates.tool_call(call, spec.kind if spec else "other"))

        def context(call: ToolCall) -> ToolContext:
            return self._context(call, run_id, shells.get(call.id, self.shell))

        steps = Steps(context, admit, on_start, after, on_end)
        try:
            await dispatch(calls, self._specs, steps)
        finally:
            for shell in shells.values():
                if shell.cwd != start:
                    self.shell.cwd = shell.cwd

    def _context(self, call: ToolCall, run_id: str, shell: Shell) -> ToolContext:
        def emit_output(text: str) -> None:
            self._core.log.emit(events.TOOL_OUTPUT, {"tool_call_id": call.id, "text": text}, run_id)

        run = self._core.find(run_id)
        return replace(
            self._base,
            call_id=call.id,
            shell=shell,
            granted=call.granted,
            emit_output=emit_output,
            until=call.until,
            editor=run and run.editor,
        )

    async def _after(self, call: ToolCall, result: ToolResult, repeats: int) -> ToolResult:
        """What the model should know with the result: a hook's word, the instructions of a
        directory it has come to, jobs that have ended, that it repeats itself. A result for code
        stays as it is, since no model reads it: that is told later."""
        event = "PostToolUseFailure" if result.is_error else "PostToolUse"
        payload = tool_payload(call) | {"tool_result": text_of(result.content)}
        hooked = await self._hooks.fire(event, call.spec.name, payload)
        more = [call.context, *self._gate.heard(hooked), hooked.context]
        if not result.is_error:
            root = self._base.root
            more += [self._nested.for_path(root / path) for path in call.spec.paths(call.params)]
        for_code = call.until is not None
        if not for_code:
            more = [*self.take_untold(), *more, *(f"[{job}]" for job in self.jobs.take_news())]
        more = [text for text in (*more, reminder(repeats)) if text]
        if for_code:
            self._untold += more
            return result
        return with_more(result, more)


def text_of(content: str | list[Block]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text") or f"[{block['type']}]" for block in content)


def with_more(result: ToolResult, texts: Sequence[str]) -> ToolResult:
    """`result` with `texts` behind it."""
    if not texts:
        return result
    more = "\n\n" + "\n\n".join(texts)
    if isinstance(result.content, str):
        return replace(result, content=result.content + more)
    return replace(result, content=[*result.content, {"type": "text", "text": more.strip()}])
