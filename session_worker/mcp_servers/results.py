"""What a server answers to a call, as the model reads it.

`to_result` is pure but for what it is given to `keep` things with. It takes the answer as it came
over the wire, so that nothing here needs the MCP library.
"""

from __future__ import annotations

import base64
import contextlib
import json
import mimetypes
import os
from collections.abc import Callable, Mapping
from typing import Any, cast

from session_worker import images
from session_worker.tools.spec import Block, ToolContext, ToolResult
from session_worker.tools.spill import create_file
from session_worker.tools.truncate import json_safe, size_text
from sidecar.protocol import mcp_bounds

MAX_CHARS_META = "anthropic/maxResultSizeChars"
_JQ = "look into it with jq, for example jq 'keys'"
_READ = "read_file it with offset and limit, or grep it"
_CUT = "it is one line: look into it with cut -c1-2000 or grep -o"

Wire = Mapping[str, Any]
Keep = Callable[[bytes, str], str]
"""Puts bytes into a file with that suffix; says where, or why not."""


def to_result(answer: Wire, keep: Keep, tool_limit: object = None) -> ToolResult:
    """A `tools/call` result. `tool_limit` is the MAX_CHARS_META of the tool, the answer's own is
    stronger. An error keeps all of its blocks."""
    blocks = [_block(content, keep) for content in answer.get("content") or ()]
    structured = answer.get("structuredContent")
    if structured is not None and not any(_says(block, structured) for block in blocks):
        blocks.append(_text(json.dumps(structured, ensure_ascii=False)))
    meta: Wire = answer.get("_meta") or {}
    blocks = _within(blocks, _limit(meta.get(MAX_CHARS_META), tool_limit), keep)
    is_error = bool(answer.get("isError"))
    if all(block["type"] == "text" for block in blocks):
        text = "\n".join(block["text"] for block in blocks)
        return ToolResult(text or "(no output)", is_error=is_error)
    return ToolResult(blocks, is_error=is_error)


def keep_in(ctx: ToolContext) -> Keep:
    """Keeps things with the session's other long results."""

    def keep(data: bytes, suffix: str) -> str:
        try:
            fd, path = create_file(ctx, suffix)
            with os.fdopen(fd, "wb") as file:
                file.write(data)
        except OSError as error:  # what the call did is done: its result must not get lost
            return f"nowhere: {error.strerror}"
        return str(path)

    return keep


def _block(content: Wire, keep: Keep) -> Block:
    match content:
        case {"type": "text", "text": str(text)}:
            return _text(text)
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            return _bytes(kind, data, content.get("mimeType"), keep)
        case {"type": "resource_link"}:
            return _text(f"[resource {_described(content)}]")
        case {"type": "resource", "resource": {"text": str(text)} as resource}:
            return _text(f"[resource {_described(resource)}]\n{text}")
        case {"type": "resource", "resource": {"blob": str(data)} as resource}:
            name = f"resource {_described(resource)}"
            return _bytes(name, data, resource.get("mimeType"), keep)
        case _:
            return _text(
                f"[{str(content.get('type'))[: mcp_bounds.MCP_NAMED_CHARS]}: cannot be shown]"
            )


def _bytes(what: str, data: str, media_type: object, keep: Keep) -> Block:
    """An image that the model can see, or a note of where the bytes are."""
    media_type = media_type if isinstance(media_type, str) else "application/octet-stream"
    if media_type.startswith("image/") and len(data) <= mcp_bounds.MCP_IMAGE_BASE64_BYTES:
        source = {"type": "base64", "media_type": media_type, "data": data}
        sound = images.sound({"type": "image", "source": source})
        if not isinstance(sound, str):
            return sound
    try:
        raw = base64.b64decode(data, validate=True)
    except ValueError:
        return _text(f"[{what}: not valid base64]")
    suffix = mimetypes.guess_extension(media_type.partition(";")[0].strip()) or ".bin"
    size, where = size_text(len(raw)), keep(raw, suffix)
    return _text(f"[{what}: {media_type[: mcp_bounds.MCP_NAMED_CHARS]}, {size}; saved to {where}]")


def _described(resource: Wire) -> str:
    uri, title = resource.get("uri", ""), resource.get("title") or resource.get("name")
    words = [str(word) for word in (title, uri, resource.get("mimeType")) if word]
    if isinstance(size := resource.get("size"), int):
        words.append(size_text(size))
    if description := resource.get("description"):
        words.append(f"- {description}")
    return " ".join(words)[: mcp_bounds.MCP_NAMED_CHARS]


def _says(block: Block, structured: object) -> bool:
    """Whether the block is that value, or all there is in it, as servers repeat it for older
    clients."""
    if block["type"] != "text":
        return False
    said: list[object] = [block["text"]]
    with contextlib.suppress(ValueError, RecursionError):
        said.append(json.loads(block["text"]))
    meant: list[object] = [structured]
    if isinstance(structured, dict) and len(cast("Wire", structured)) == 1:
        meant += cast("Wire", structured).values()
    return any(value in said for value in meant)


def _limit(*wishes: object) -> int:
    for wish in wishes:
        if isinstance(wish, int) and not isinstance(wish, bool) and wish > 0:
            return min(wish, mcp_bounds.MCP_TEXT_CHARS_MAX)
    return mcp_bounds.MCP_TEXT_CHARS


def _within(blocks: list[Block], limit: int, keep: Keep) -> list[Block]:
    """The blocks, or a file for all of their text where that is too long."""
    texts = [cast(str, block["text"]) for block in blocks if block["type"] == "text"]
    if sum(map(len, texts)) <= limit:
        return blocks
    whole = "\n".join(texts)
    is_json = _is_json(whole)
    raw, lines = whole.encode(), whole.count("\n") + 1
    where = keep(raw, ".json" if is_json else ".txt")
    recipe = _JQ if is_json else _READ if lines > 1 else _CUT
    size = f"{lines} lines/{size_text(len(raw))}"
    note = f"[{size}, too long to show; the whole: {where}; {recipe}]"
    rest = [block for block in blocks if block["type"] != "text"]
    return [_text(f"{whole[: mcp_bounds.MCP_PREVIEW_CHARS]}\n…\n{note}"), *rest]


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _text(text: str) -> Block:
    return {"type": "text", "text": json_safe(text)}
