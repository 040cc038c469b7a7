"""The message history: append-only, written to the transcript before anything relies on it."""

from __future__ import annotations

from typing import Any

from session_worker.transcript import Transcript

Block = dict[str, Any]
Message = dict[str, Any]


class Conversation:
    """What the model is sent. Earlier messages never change: thinking signatures and the prompt
    cache are bound to them (anthropic.md §3.3)."""

    def __init__(self, transcript: Transcript, messages: list[Message]) -> None:
        self._transcript = transcript
        self._messages = messages

    def add_prompt(self, content: list[Block], run_id: str) -> None:
        """Not synced again: the prompt became durable when it was accepted."""
        self._add({"role": "user", "content": content}, run_id, sync=False)

    def add_results(self, results: list[Block], run_id: str) -> None:
        """Durable on return: what a tool did is never forgotten."""
        self._add({"role": "user", "content": results}, run_id, sync=True)

    def add_assistant(self, content: list[Block], run_id: str) -> None:
        self._add({"role": "assistant", "content": content}, run_id, sync=False)

    def _add(self, message: Message, run_id: str, *, sync: bool) -> None:
        self._transcript.append("message", sync=sync, run_id=run_id, message=message)
        self._messages.append(message)

    def open_calls(self) -> list[Block]:
        """The tool calls of the last message; they wait for their results."""
        if not self._messages or self._messages[-1]["role"] != "assistant":
            return []
        content: list[Block] = self._messages[-1]["content"]
        return [block for block in content if block.get("type") == "tool_use"]

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


def _is_blank(block: Block) -> bool:
    return block.get("type") == "text" and not (block.get("text") or "").strip()


def tool_result(call_id: str, text: str, *, is_error: bool) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    return {**block, "is_error": True} if is_error else block
