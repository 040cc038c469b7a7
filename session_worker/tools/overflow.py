"""Results that are too long for the model: head and tail of them, and the whole in a file."""

from __future__ import annotations

import dataclasses
import os

from session_worker.tools.spec import Block, ToolContext, ToolResult
from session_worker.tools.spill import create_file
from session_worker.tools.truncate import json_safe, shorten, size_text
from sidecar.protocol.bounds import MESSAGE_RESULTS_CHARS, MIB, RESULT_CHARS_MIN

MESSAGE_DATA_CHARS = 28 * MIB
"""Of base64 in the results of one message: the largest PDF, alone. A request may have 32 MB."""


class Room:
    """What the results of one message may hold together; who ends first has the most."""

    def __init__(self) -> None:
        self._left = MESSAGE_RESULTS_CHARS
        self._data_left = MESSAGE_DATA_CHARS

    def fit(self, result: ToolResult, max_chars: int, ctx: ToolContext) -> ToolResult:
        """`result` within `max_chars` and what is left."""
        limit = max(RESULT_CHARS_MIN, min(max_chars, self._left))
        if isinstance(result.content, str):
            content: str | list[Block] = _fitting(result.content, limit, ctx)
            self._left -= len(content)
        else:
            content = [
                block | {"text": _fitting(block["text"], limit, ctx)} if "text" in block else block
                for block in map(self._affordable, result.content)
            ]
            self._left -= sum(len(block.get("text", "")) for block in content)
        return dataclasses.replace(result, content=content)

    def _affordable(self, block: Block) -> Block:
        """An image or a document, or a word in its place if there is no room for it."""
        size = len(block.get("source", {}).get("data", ""))
        if size > self._data_left:
            return {
                "type": "text",
                "text": f"[{block['type']} not shown: the results of this turn hold too much "
                "already; ask for it in another turn]",
            }
        self._data_left -= size
        return block


def _fitting(text: str, limit: int, ctx: ToolContext) -> str:
    text = json_safe(text)
    if len(text) <= limit:
        return text
    raw = text.encode()
    try:
        fd, path = create_file(ctx, ".txt")
        with os.fdopen(fd, "wb") as file:
            file.write(raw)
        where = f"full: {path}"
    except OSError as error:  # what the call did is done, and its result must not get lost
        where = f"the whole could not be kept: {error.strerror}"
    head = limit * 3 // 10
    whole = f"{text.count(chr(10)) + 1} lines/{size_text(len(raw))}"
    return f"{shorten(text, head, limit - head)}\n[{whole}, middle omitted; {where}]"
