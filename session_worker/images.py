"""What the Messages API takes as an image, read off the bytes (anthropic.md §3.4). Pure.

One image that it refuses poisons every later request, so they are looked at before they are sent.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

Block = dict[str, Any]

BASE64_BYTES = 10 * 1024 * 1024
"""Of one image, as it is sent."""
SHOWN = frozenset({"image", "document"})
"""Blocks that a model sees, and whose bytes may be too many."""
SIDE_PX = 8000
MANY = 20
"""Images of a request past which a side may only have MANY_SIDE_PX."""
MANY_SIDE_PX = 2000

_JPEG_NO_FRAME = {0xC4, 0xC8, 0xCC}
"""Markers among the start-of-frame ones that start none."""
_JPEG_NO_LENGTH = {0x01, *range(0xD0, 0xD9)}


@dataclass(frozen=True)
class Seen:
    """What the bytes are, whatever was said of them."""

    media_type: str
    width: int
    height: int

    @property
    def side(self) -> int:
        return max(self.width, self.height)


def look(block: Block) -> Seen | None:
    """The image in a base64 block; None if the bytes are none the API knows."""
    try:
        data = base64.b64decode(block["source"]["data"], validate=True)
        return _seen(data)
    except (KeyError, TypeError, ValueError, IndexError, struct.error):
        return None


def side(block: Block) -> int:
    """The longer side in pixels; 0 for one that is not sent as bytes."""
    is_bytes = block["source"].get("type") == "base64"
    seen = look(block) if is_bytes else None
    return seen.side if seen else 0


def sound(block: Block) -> Block | str:
    """The block as the API takes it, or what is wrong with it."""
    source = cast("Block", block["source"])
    if source.get("type") in ("url", "file"):
        address = source.get("url" if source["type"] == "url" else "file_id")
        return block if isinstance(address, str) and address else "no address"
    if source.get("type") != "base64" or not isinstance(source.get("data"), str):
        return "no data"
    if len(source["data"]) > BASE64_BYTES:
        return f"{len(source['data'])} bytes, more than {BASE64_BYTES}"
    seen = look(block)
    if seen is None:
        return "unreadable"
    if seen.side > SIDE_PX:
        return f"{seen.width} by {seen.height} pixels, more than {SIDE_PX}"
    if seen.media_type != source.get("media_type"):
        return {**block, "source": {**source, "media_type": seen.media_type}}
    return block


def _seen(data: bytes) -> Seen | None:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return _whole("image/png", *struct.unpack_from(">II", data, 16))
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return _whole("image/gif", *struct.unpack_from("<HH", data, 6))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _whole("image/webp", *_webp(data))
    if data.startswith(b"\xff\xd8\xff"):
        return _whole("image/jpeg", *_jpeg(data))
    return None


def _whole(media_type: str, width: int, height: int) -> Seen | None:
    return Seen(media_type, width, height) if width and height else None


def _webp(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            if len(data) < 30:
                return 0, 0
            return (
                int.from_bytes(data[24:27], "little") + 1,
                int.from_bytes(data[27:30], "little") + 1,
            )
        case _:
            return 0, 0


def _jpeg(data: bytes) -> tuple[int, int]:
    """From the frame header, behind any number of other segments."""
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker in _JPEG_NO_LENGTH:
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in _JPEG_NO_FRAME:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        else:
            at += 2 + int(struct.unpack_from(">H", data, at + 2)[0])
    return 0, 0


def count(block: Block) -> int:
    """The images a block is or has in it."""
    return sum(part["type"] == "image" for part in (block, *_parts(block)))


def without(block: Block, is_bad: Callable[[Block], bool], why: str) -> Block:
    """The block with a note in the place of each image or document that is bad; itself if none
    is."""
    if block["type"] in SHOWN and is_bad(block):
        return note(f"{block['type']} left out: {why}")
    parts = _parts(block)
    kept = [without(part, is_bad, why) for part in parts]
    return block if same(kept, parts) else {**block, "content": kept}


def _parts(block: Block) -> list[Block]:
    content = block.get("content") if block["type"] == "tool_result" else None
    return cast("list[Block]", content) if isinstance(content, list) else []


def same(some: list[Any], others: list[Any]) -> bool:
    """Whether two lists hold the very same things."""
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


def note(words: str) -> Block:
    """What stands for something that cannot be sent."""
    return {"type": "text", "text": f"[{words}]"}
