"""The session's tools as the loop uses them: schemas out, tool_use blocks in, events told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from session_worker import permissions, updates
from session_worker.blocks import Block, tool_result
from session_worker.core import SessionCore
from session_worker.tools.bash import BASH
from session_worker.tools.dispatch import ToolCall, ToolUse, dispatch
from session_worker.tools.schema import tool_schema
from session_worker.tools.spec import Shell, ToolContext, ToolResult, ToolSpec
from sidecar.protocol import events

TOOLS: Sequence[ToolSpec[Any]] = (BASH,)
_SCHEMAS = [tool_schema(spec) for spec in TOOLS]
"""Made once, before the fork: pydantic takes 10 ms and 2 MB for it in every worker else."""


class Toolbox:
    """Frozen for the session: a changed tool list would break the prompt cache."""

    def __init__(self, core: SessionCore, cwd: Path) -> None:
        self._core = core
        self._specs = {spec.name: spec for spec in TOOLS}
        self.shell = Shell(cwd)
        self.schemas = _SCHEMAS
        core.spec.places["spill"].mkdir(mode=0o700, exist_ok=True)

    async def run(self, calls: list[Block], run_id: str, finished: dict[str, Block]) -> None:
        """Run `calls`; their results appear in `finished`, by call id, as they end.

        So a caller that is cancelled still knows what has happened.
        """

        def emit(update: updates.Update) -> None:
            self._core.log.emit(events.UPDATE, update, run_id)

        async def permit(call: ToolCall) -> str | None:
            return permissions.refusal(
                self._core.spec.mode, call.spec.name, read_only=call.spec.read_only
            )

        async def on_start(call: ToolCall) -> None:
            if not call.spec.read_only:
                self._core.transcript.append(
                    "tool_intent", sync=True, run_id=run_id, tool_use_id=call.id
                )
            emit(updates.tool_call_started(call.id, call.spec.render(call.params), call.spec.kind))

        def on_end(use: ToolUse, result: ToolResult) -> None:
            finished[use["id"]] = tool_result(use["id"], result.content, is_error=result.is_error)
            emit(updates.tool_call_ended(use["id"], result.content, result.is_error, result.meta))

        for call in calls:
            spec = self._specs.get(call["name"])
            emit(updates.tool_call(call, spec.kind if spec else "other"))
        await dispatch(
            calls,
            self._specs,
            make_context=lambda call_id: self._context(call_id, run_id),
            permit=permit,
            on_start=on_start,
            on_end=on_end,
        )

    def _context(self, call_id: str, run_id: str) -> ToolContext:
        spec = self._core.spec

        def emit_output(text: str) -> None:
            self._core.log.emit(events.TOOL_OUTPUT, {"tool_call_id": call_id, "text": text}, run_id)

        return ToolContext(
            call_id=call_id,
            root=spec.cwd,
            shell=self.shell,
            env=spec.tool_env,
            spill_dir=spec.places["spill"],
            emit_output=emit_output,
        )
