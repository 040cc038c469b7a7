"""The transcript for people: prompts, answers, tool calls and their results. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def render(records: Iterable[dict[str, Any]]) -> str:
    """One Markdown document of the `message` records."""
    parts: list[str] = []
    for record in records:
        if record.get("kind") == "message":
            parts += _message(record["message"])
    return "\n\n".join(parts) + "\n"


def _message(message: dict[str, Any]) -> Iterator[str]:
    for block in message["content"]:
        match block.get("type"):
            case "text" if message["role"] == "user":
                yield f"## {block['text']}"
            case "text":
                yield block["text"]
            case "tool_use":
                shown = block["input"].get("command", block["input"])
                yield f"**{block['name']}**\n\n{_fenced(str(shown))}"
            case "tool_result":
                yield _fenced(str(block.get("content", "")))
            case _:
                pass


def _fenced(text: str) -> str:
    """A code block whose fence is longer than any run of backticks inside."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
