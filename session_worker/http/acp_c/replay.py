"""The conversation of a transcript as `session/update` bodies, for `session/load`. Pure.

What was said is told, not how it came: one chunk a text, one update a tool call that has ended.
A call that the provider ran is told when it was made, and once more when it ended: the calls that
its code made come in between. What has not been written down yet, the events after `seq` tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from session_worker import updates
from session_worker.blocks import SERVER_CALLS, Block, calling_code, is_server_result
from session_worker.compaction import estimate
from session_worker.tools.dispatch import ToolCall, check
from session_worker.tools.spec import ToolResult
from session_worker.tools.todo_write import TodoParams
from session_worker.tools.toolbox import BY_NAME
from session_worker.transcript import Record
from session_worker.updates import Update

_UNKNOWN: Block = {"type": "tool_use", "name": "tool", "input": {}}
"""For a result whose call is not on record under the same id."""


class Replay:
    """Fed the records in their order. `seq` is the newest event that they cover."""

    def __init__(self, root: Path) -> None:
        """Relative paths of tool calls start at `root`."""
        self._root = root
        self._prompts: dict[str, list[Block]] = {}
        self._calls: dict[str, Block] = {}
        self._at_the_provider: dict[str, None] = {}
        self.seq: int | None = None

    def feed(self, record: Record) -> list[Update]:
        match record:
            case {"kind": "run_started", "run_id": run_id}:
                said = record.get("content") or [updates.text_block(record["prompt"])]
                self._prompts[run_id] = said
            case {"kind": "message", "message": {"role": role, "content": list()}}:
                self.seq = record.get("seq", self.seq)
                content: list[Block] = record["message"]["content"]
                message_id = f"replay-{record['n']}"
                if role == "assistant":
                    return list(self._answer(content, message_id))
                return list(self._said(record["run_id"], content, message_id))
            case {"kind": "run_finished"}:
                return list(self._give_up())
            case _:
                pass
        return []

    def open_calls(self) -> list[Update]:
        """The tool calls that have no result on record."""
        return [self._call(call)[0] for call in self._calls.values()]

    def _answer(self, content: list[Block], message_id: str) -> Iterator[Update]:
        for block in content:
            match block:
                case {"type": "text", "text": str(text)} if text:
                    yield updates.chunk("agent_message_chunk", text, message_id)
                case {"type": "thinking", "thinking": str(text)} if text:
                    yield updates.chunk("agent_thought_chunk", text, message_id)
                case {"type": "tool_use", "id": str(call_id)}:
                    self._calls[call_id] = block
                case {"type": str(kind)} if kind in SERVER_CALLS:
                    if update := updates.server_call(block):
                        self._at_the_provider[update["toolCallId"]] = None
                        yield update
                case {"type": str()} if is_server_result(block):
                    if update := updates.server_call_ended(block):
                        self._at_the_provider.pop(update["toolCallId"], None)
                        yield update
                case _:
                    pass

    def _give_up(self) -> Iterator[Update]:
        """What the provider ran and did not end: nothing that is said later goes on with it."""
        for call_id in self._at_the_provider:
            yield updates.server_call_given_up(call_id, "the run ended first")
        self._at_the_provider.clear()

    def _said(self, run_id: str, content: list[Block], message_id: str) -> Iterator[Update]:
        """A run's first message is its prompt, with more around it that the user did not say;
        what else is said is either results or not the user's."""
        results = [block for block in content if block.get("type") == "tool_result"]
        if not results:
            yield from self._give_up()
            for block in self._prompts.pop(run_id, ()):
                yield updates.user_content(block, message_id)
        for block in results:
            yield from self._ended(block)

    def _ended(self, block: Block) -> Iterator[Update]:
        call_id: str = block["tool_use_id"]
        call = self._calls.pop(call_id, None) or {"id": call_id, **_UNKNOWN}
        result = ToolResult(block.get("content", ""), block.get("is_error", False))
        shown, checked = self._call(call)
        kept_out = estimate(result.content) if calling_code(call) else None
        ended = updates.tool_call_ended(call_id, result, kept_out)
        meta = {**shown.get("_meta", {}), **ended.get("_meta", {})}
        ended = {"status": ended["status"], "content": ended["content"]}
        yield {**shown, **ended, **({"_meta": meta} if meta else {})}
        if checked and isinstance(checked.params, TodoParams) and not result.is_error:
            yield updates.plan([_entry(todo.model_dump()) for todo in checked.params.todos])

    def _call(self, call: Block) -> tuple[Update, ToolCall | None]:
        checked = check(call, BY_NAME)
        if isinstance(checked, ToolCall):
            announced = updates.tool_call(call, checked.spec.kind)
            return {**announced, **checked.shown(self._root)}, checked
        return updates.tool_call(call, "other"), None


def _entry(todo: dict[str, Any]) -> dict[str, str]:
    return {"content": todo["content"], "priority": "medium", "status": todo["status"]}
