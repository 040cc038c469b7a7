"""What tools of the API's own were asked and what came of it, in words for people. Pure.

Their blocks are the provider's, and may be of any shape: what is not understood is named, and
nothing here raises (anthropic.md §2.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

Block = Mapping[str, Any]

_KINDS = {
    "code_execution": "execute",
    "bash_code_execution": "execute",
    "text_editor_code_execution": "execute",
    "web_search": "search",
    "tool_search_tool_regex": "search",
    "tool_search_tool_bm25": "search",
    "web_fetch": "fetch",
}
_SAID = ("code", "command", "query", "pattern", "url")
"""The input that says what a call is about, by the tool that has it."""
_ENCRYPTED = "[output is encrypted: only the model reads it]"


def kind(name: str) -> str:
    """As ACP-C calls it."""
    return _KINDS.get(name, "other")


def source(call: Block) -> str:
    """The code, the command, the words: all of what was asked; else the name."""
    given = _object(call.get("input"))
    words = [given[key] for key in (*_SAID, "path") if isinstance(given.get(key), str)]
    return " ".join(filter(None, words)) or _name(call)


def title(call: Block) -> str:
    """The first line of that which says something."""
    first, *more = [line.strip() for line in source(call).splitlines() if line.strip()] or [""]
    return first + "…" if more else first or _name(call)


def _name(call: Block) -> str:
    """With that of the MCP server, for a call over the API's connector."""
    server = call.get("server_name")
    return f"{server}: {call.get('name')}" if server else str(call.get("name"))


def outcome(result: Block) -> tuple[str, bool]:
    """What a `…_tool_result` says, and whether it failed."""
    about = _object(result.get("content"))
    failed = bool(result.get("is_error") or about.get("return_code") or "error_code" in about)
    return "\n".join(_texts(result.get("content"))) or "(no output)", failed


def facts(result: Block) -> dict[str, Any]:
    """What programs may want to know of it besides the text."""
    about = _object(result.get("content"))
    return {key: about[key] for key in ("type", "return_code", "error_code") if key in about}


def _texts(content: object) -> Iterator[str]:
    """Of results nested no deeper than their reader allows (`MESSAGE_DEPTH`)."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for item in cast("list[object]", content):
            yield from _texts(item)
    else:
        yield from _told(_object(content))


def _told(content: Block) -> Iterator[str]:
    if "error_code" in content:
        said = content.get("error_message")
        yield f"error: {content['error_code']}" + (f": {said}" if said else "")
    elif "return_code" in content:
        yield from _run(content)
    elif isinstance(text := content.get("text", content.get("content")), str):
        yield text
    elif "file_id" in content:
        yield f"[file {content['file_id']}]"
    elif "url" in content:
        yield (
            f"{content['title']} — {content['url']}"
            if content.get("title")
            else f"{content['url']}"
        )
    elif "tool_references" in content:
        yield from _texts(content["tool_references"])
    else:
        yield str(content.get("tool_name") or f"[{content.get('type')}]")


def _run(content: Block) -> Iterator[str]:
    if content.get("encrypted_stdout"):
        yield _ENCRYPTED
    for name, before in (("stdout", ""), ("stderr", "[stderr]\n")):
        if isinstance(said := content.get(name), str) and said.strip():
            yield before + said.rstrip("\n")
    yield from _texts(content.get("content") or [])  # files that it made
    if content["return_code"]:
        yield f"[exit {content['return_code']}]"


def _object(value: object) -> Block:
    return cast("Block", value) if isinstance(value, dict) else {}
