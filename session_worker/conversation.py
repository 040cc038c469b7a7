"""The message history: append-only, written to the transcript before anything relies on it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from session_worker.transcript import Transcript, history

Block = dict[str, Any]
Message = dict[str, Any]


class Conversation:
    """What the model is sent. Earlier messages never change: thinking signatures and the prompt
    cache are bound to them (anthropic.md §3.3)."""

    def __init__(self, transcript: Transcript, records: Iterable[dict[str, Any]]) -> None:
        """Goes on from the transcript's `records`. Calls that were cut off at the end stay open:
        the next run answers them, on record and for everybody to see."""
        said = [record for record in records if record["kind"] == "message"]
        self._transcript = transcript
        self._messages = history(said)
        self._run_ids = {record["run_id"] for record in said}
        if said and self._messages[-1:] != [said[-1]["message"]] and _asks(said[-1]["message"]):
            self._messages.pop()

    def add_prompt(self, content: list[Block], run_id: str) -> None:
        """Not synced again: the prompt became durable when it was accepted."""
        self._add({"role": "user", "content": content}, run_id, sync=False)

    def add_results(self, results: list[Block], run_id: str, cwd: str) -> None:
        """Durable on return: what a tool did is never forgotten, nor the directory it left."""
        self._add({"role": "user", "content": results}, run_id, sync=True, cwd=cwd)

    def add_assistant(self, content: list[Block], run_id: str) -> None:
        self._add({"role": "assistant", "content": content}, run_id, sync=False)

    def _add(self, message: Message, run_id: str, *, sync: bool, **more: str) -> None:
        self._transcript.append("message", sync=sync, run_id=run_id, message=message, **more)
        self._messages.append(message)
        self._run_ids.add(run_id)

    def holds(self, run_id: str) -> bool:
        """Whether any message of that run is here, its prompt first of all."""
        return run_id in self._run_ids

    def is_answered(self) -> bool:
        """Whether the last word is the model's, and asks for nothing."""
        last = self._messages[-1] if self._messages else None
        return last is not None and last["role"] == "assistant" and not self.open_calls()

    def open_calls(self) -> list[Block]:
        """The tool calls of the last message; they wait for their results."""
        return _asks(self._messages[-1]) if self._messages else []

    def for_request(self) -> list[Message]:
        """The history as the API accepts it; what it would refuse for ever is left out.

        Blank text blocks go, and neighbours of one role become one message: results that closed
        a cancelled run and the next prompt belong together, results first (anthropic.md §4).
        """
        merged: list[Message] = []
        for message in self._messages:
            content = [block for block in message["content"] if not _is_blank(block)]
            if not content:
                continue
            if merged and merged[-1]["role"] == message["role"]:
                merged[-1]["content"] += content
            else:
                merged.append({"role": message["role"], "content": content})
        return merged


def _asks(message: Message) -> list[Block]:
    content: list[Block] = message["content"] if message["role"] == "assistant" else []
    return [block for block in content if block.get("type") == "tool_use"]


def _is_blank(block: Block) -> bool:
    return block.get("type") == "text" and not (block.get("text") or "").strip()


def tool_result(call_id: str, text: str, *, is_error: bool) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    return {**block, "is_error": True} if is_error else block
