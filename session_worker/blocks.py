"""What the Messages API takes as the content of one message, seen by itself (anthropic.md §3).

Used by `history` alone. Pure: nothing that is passed in is changed. Never raises, whatever a
corrupted transcript may hold; what cannot be sent is left out, and the report says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from session_worker import images
from session_worker.images import note, same

Block = dict[str, Any]
Message = dict[str, Any]

REQUIRED: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
    "tool_use": {"id": str, "name": str, "input": dict},
    "server_tool_use": {"id": str, "name": str, "input": dict},
    "mcp_tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"tool_use_id": str},
    "image": {"source": dict},
}
"""What a block must have, by its type; what a type of later days must have is not ours to say."""
_OF_RESULTS: dict[str, type] = {"tool_use_id": str, "content": object}
_RESULT = "tool_result"
"""Also stands for the role where blocks are those of a result."""
OF_THE_USER = frozenset({"tool_result", "image", "document", "search_result"})
OF_THE_MODEL = frozenset(
    {"thinking", "redacted_thinking", "tool_use", "server_tool_use", "mcp_tool_use"}
)
THINKING = frozenset({"thinking", "redacted_thinking"})
SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
HALF = re.compile("[\ud800-\udfff]")
IDS = re.compile(r"[a-zA-Z0-9_-]+")
TOOL_NAMES = re.compile(r"[a-zA-Z0-9_-]{1,128}")


@dataclass
class Report:
    """What had to be changed. `damaged`: some of it is no habit of the API, so what the model
    answered then may have been something else."""

    changes: list[str] = field(default_factory=list[str])
    damaged: bool = False

    def tidied(self, change: str) -> None:
        self.changes.append(change)

    def repaired(self, change: str) -> None:
        self.changes.append(change)
        self.damaged = True


def is_server_result(block: Block) -> bool:
    return block["type"].endswith("_tool_result")


def calling_code(block: Mapping[str, Any]) -> str | None:
    """The id of the server tool call whose code calls this tool and waits for its result (PTC)."""
    match block:
        case {"type": "tool_use", "caller": {"type": str(kind), **caller}}:
            return str(caller.get("tool_id")) if kind.startswith("code_execution") else None
        case _:
            return None


def without_caller(block: Block) -> Block:
    """The call as if the model had made it itself: it may be answered next to anything."""
    return {key: value for key, value in block.items() if key != "caller"}


def without_last_thoughts(blocks: list[Block]) -> list[Block]:
    """The API refuses an answer that ends in thinking, and wants it back with nothing after it."""
    end = len(blocks)
    while end and blocks[end - 1]["type"] in THINKING:
        end -= 1
    return blocks[:end]


def clean(role: str, content: Any, report: Report) -> list[Block]:
    """The blocks of a message that can be sent in one of that role."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        report.repaired("content: neither text nor a list, left out")
        return []
    return list(_cleaned(role, cast("list[Any]", content), "content", report))


def _cleaned(role: str, content: list[Any], path: str, report: Report) -> Iterator[Block]:
    for index, block in enumerate(content):
        where = f"{path}.{index}"
        if (wrong := _wrong(role, block)) is not None:
            report.repaired(f"{where}: {wrong}, left out")
            continue
        if (mended := _mended(block)) is not block:
            report.repaired(f"{where}: half a character replaced")
            if block["type"] in THINKING:
                continue  # signed as it was, and not to be sent as it was
            block = mended
        if block["type"] == "text" and not block["text"].strip():
            report.tidied(f"{where}: blank text left out")
        else:
            yield _tidy(role, block, where, report)


def _mended(block: Block) -> Block:
    """The block with halves of surrogate pairs put together or replaced: no UTF-8, and so no
    request, can hold one. Itself if there are none."""
    raw = json.dumps(block, ensure_ascii=False)
    if not HALF.search(raw):
        return block
    return json.loads(raw.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _wrong(role: str, block: Any) -> str | None:
    """Why a block cannot be sent, if there is a reason."""
    if not isinstance(block, dict) or not isinstance(cast("Block", block).get("type"), str):
        return "no content block"
    block = cast("Block", block)
    kind: str = block["type"]
    required = REQUIRED.get(kind, _OF_RESULTS if is_server_result(block) else {})
    for name, expected in required.items():
        if block.get(name) is None or not isinstance(block[name], expected):
            return f"{kind} without {name}"
    if kind == "thinking" and not block["signature"]:
        return "thinking without signature"
    if "id" in required and not IDS.fullmatch(block["id"]):
        return f"{kind} with a malformed id"
    if kind == "tool_use" and not TOOL_NAMES.fullmatch(block["name"]):
        return "tool_use with a malformed name"
    if kind == "tool_result" and not isinstance(block.get("content", ""), str | list):
        return "tool_result with malformed content"
    if not _may_stand(kind, role):
        return f"{kind} in a {role}" if role == _RESULT else f"{kind} in a message of role {role}"
    return None


def _may_stand(kind: str, role: str) -> bool:
    if kind in OF_THE_USER:
        return role == "user" or (role == _RESULT and kind != _RESULT)
    return role == "assistant" or not (kind in OF_THE_MODEL or is_server_result({"type": kind}))


def _tidy(role: str, block: Block, where: str, report: Report) -> Block:
    """The block without what the API takes exception to in it."""
    if "cache_control" in block:
        report.tidied(f"{where}: cache_control left out")
        block = {key: value for key, value in block.items() if key != "cache_control"}
    match block["type"]:
        case "image":
            return _tidy_image(block, where, report)
        case "tool_result":
            return _tidy_result(block, where, report)
        case "tool_use" if "caller" in block and not _is_caller(block["caller"]):
            report.repaired(f"{where}: malformed caller left out")
            return without_caller(block)
        case "text" if role == "user" and block.get("citations"):
            report.repaired(f"{where}: citations of a user left out")
            return {key: value for key, value in block.items() if key != "citations"}
        case _:
            return block


def _is_caller(caller: Any) -> bool:
    return isinstance(caller, dict) and isinstance(cast("Block", caller).get("type"), str)


def _tidy_image(block: Block, where: str, report: Report) -> Block:
    found = images.sound(block)
    if isinstance(found, str):
        report.repaired(f"{where}: image replaced by a note: {found}")
        return note(f"image left out: {found}")
    if found is not block:
        report.repaired(f"{where}: media type corrected to {found['source']['media_type']}")
    return found


def _tidy_result(block: Block, where: str, report: Report) -> Block:
    content = block.get("content")
    if isinstance(content, list):
        given = cast("list[Any]", content)
        parts = list(_cleaned(_RESULT, given, f"{where}.content", report))
        if not same(parts, given):
            block = {**block, "content": parts}
    if not isinstance(block.get("is_error", False), bool):
        report.repaired(f"{where}: malformed is_error left out")
        block = {key: value for key, value in block.items() if key != "is_error"}
    if block.get("is_error"):
        return text_only(block, where, report)
    return block


def text_only(block: Block, where: str, report: Report) -> Block:
    """A result as the API wants it of errors and for code: nothing but text."""
    content = block.get("content")
    if not isinstance(content, list):
        return block
    parts = cast("list[Block]", content)
    if all(part["type"] == "text" for part in parts):
        return block
    report.repaired(f"{where}: only text is allowed in this result, the rest replaced by notes")
    texts = [
        part if part["type"] == "text" else note(f"{part['type']} left out: text only")
        for part in parts
    ]
    return {**block, "content": texts}


def tool_result(call_id: str, content: str | list[Block], *, is_error: bool) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return {**block, "is_error": True} if is_error else block
