"""Results for code at the API, which reads nothing but text (anthropic.md §3.2)."""

from __future__ import annotations

import base64
import dataclasses
import mimetypes
import os

from session_worker.tools.spec import Block, ToolContext, ToolResult
from session_worker.tools.spill import create_file
from session_worker.tools.truncate import size_text


def in_text(result: ToolResult, ctx: ToolContext) -> ToolResult:
    """The result as one text. What is no text goes to a file, and a note names it."""
    if isinstance(result.content, str):
        return result
    texts = (
        block["text"] if block["type"] == "text" else _noted(block, ctx) for block in result.content
    )
    return dataclasses.replace(result, content="\n".join(texts))


def _noted(block: Block, ctx: ToolContext) -> str:
    kind: str = block["type"]
    source: Block = block.get("source") or {}
    media_type = str(source.get("media_type", ""))
    try:
        raw = base64.b64decode(source["data"], validate=True)
        fd, path = create_file(ctx, mimetypes.guess_extension(media_type) or ".bin")
        with os.fdopen(fd, "wb") as file:
            file.write(raw)
    except (KeyError, TypeError, ValueError):
        return f"[{kind}: cannot be shown to code]"
    except OSError as error:  # what the call did is done, and its result must not get lost
        return f"[{kind}: {media_type}; it could not be kept: {error.strerror}]"
    return f"[{kind}: {media_type}, {size_text(len(raw))}; saved to {path}]"
