"""The content blocks of a prompt, as the model gets them (acp.md §2.5). Pure."""

from __future__ import annotations

import base64
import binascii
from typing import Any, cast

from session_worker.blocks import Block
from session_worker.http.acp_c.jsonrpc import INVALID_PARAMS, Json, RpcError
from session_worker.http.prompt_blocks import IMAGE_TYPES, image_block
from session_worker.project.tagged import one_line, tagged
from session_worker.updates import text_block

_TEXTS = ("text/", "application/json", "application/xml", "application/yaml", "application/toml")


def read_prompt(given: list[Json]) -> tuple[str, list[Block] | None]:
    """The prompt's text, and all of it as blocks where it is more than one text.

    Raises `RpcError` (-32602) for what is malformed, empty, or of a kind we did not offer to take.
    """
    blocks = [_block(f"prompt.{index}", block) for index, block in enumerate(given)]
    blocks = [block for block in blocks if block["type"] != "text" or block["text"].strip()]
    if not blocks:
        raise RpcError(INVALID_PARAMS, "prompt: there is nothing in it")
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    return "\n".join(texts), blocks if len(blocks) > 1 or not texts else None


def _block(where: str, block: Json) -> Block:
    match block:
        case {"type": "text", "text": str(text)}:
            return text_block(text)
        case {"type": "image", "mimeType": str(media_type), "data": str(data)}:
            return _image(where, media_type, data)
        case {"type": "resource_link", "uri": str(uri), "name": str(name)}:
            return text_block(f"[{one_line(name)}]({one_line(uri)})")
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return text_block(tagged("resource", text, uri=uri))
        case {"type": "resource", "resource": {"uri": str(uri), "blob": str(blob), **more}}:
            return _blob(where, uri, blob, cast("dict[str, Any]", more).get("mimeType"))
        case {"type": "audio"}:
            raise RpcError(INVALID_PARAMS, f"{where}: audio is not taken")
        case _:
            raise RpcError(INVALID_PARAMS, f"{where}: not a content block of ACP version 1")


def _blob(where: str, uri: str, blob: str, media_type: Any) -> Block:
    kind = str(media_type or "application/octet-stream").partition(";")[0].strip().lower()
    if kind in IMAGE_TYPES:
        return _image(where, kind, blob)
    try:
        data = base64.b64decode(blob, validate=True)
    except binascii.Error:
        raise RpcError(INVALID_PARAMS, f"{where}: the blob is not base64") from None
    if kind == "application/pdf":
        source = {"type": "base64", "media_type": kind, "data": blob}
        return {"type": "document", "source": source}
    if kind.startswith(_TEXTS):
        return text_block(tagged("resource", data.decode(errors="replace"), uri=uri))
    return text_block(f"[{one_line(uri)}: {len(data)} bytes of {one_line(kind)}, not shown]")


def _image(where: str, media_type: str, data: str) -> Block:
    try:
        return image_block(media_type, data)
    except ValueError as error:
        raise RpcError(INVALID_PARAMS, f"{where}: {error}") from None
