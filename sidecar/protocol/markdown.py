"""The transcript for people: prompts, answers, tool calls and their results. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sidecar.protocol import server_tools

_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")


def render(records: Iterable[dict[str, Any]]) -> str:
    """One Markdown document of the `message` records."""
    parts: list[str] = []
    from_code: set[str] = set()
    for record in records:
        if record.get("kind") == "message":
            parts += _message(record["message"], from_code)
    return "\n\n".join(parts) + "\n"


def _message(message: dict[str, Any], from_code: set[str]) -> Iterator[str]:
    """`from_code` are the calls that code made so far: their results went to it alone."""
    for block in message["content"]:
        match block.get("type"):
            case "text" if message["role"] == "user":
                yield f"## {block['text']}"
            case "text":
                yield block["text"]
            case "tool_use":
                by = _caller(block)
                from_code |= {block["id"]} if by else set()
                shown = block["input"].get("command", block["input"])
                yield f"**{block['name']}**{by}\n\n{_fenced(str(shown))}"
            case "tool_result":
                yield _fenced(str(block.get("content", "")))
                if block.get("tool_use_id") in from_code:
                    yield "*This went to the code, and not into the model's context.*"
            case kind if kind in _SERVER_CALLS:
                shown = _fenced(server_tools.source(block))
                yield f"**{block.get('name')}** at the provider{_caller(block)}\n\n{shown}"
            case str(kind) if kind.endswith("_tool_result"):
                yield _fenced(server_tools.outcome(block)[0])
            case _:
                pass


def _caller(call: dict[str, Any]) -> str:
    """Said of a call that code made."""
    match call.get("caller"):
        case {"type": str(kind)} if kind.startswith("code_execution"):
            return " (called by code)"
        case _:
            return ""


def _fenced(text: str) -> str:
    """A code block whose fence is longer than any run of backticks inside."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
