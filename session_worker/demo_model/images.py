"""The rules of the Messages API about images, with its wordings (anthropic.md §3.4).

Called by `rules`, on bodies of the right shape; pure. Only headers are read.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Literal, cast

from session_worker.demo_model.conversation import blocks
from session_worker.demo_model.reply import ApiError, Json

MEDIA_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
BASE64_BYTES = 10 * 1024 * 1024
SIDE_PX = 8000
MANY, MANY_SIDE_PX = 20, 2000
TOO_LARGE = "At least one of the image dimensions exceed max allowed size"

HEADERS: tuple[tuple[str, re.Pattern[bytes], Literal["big", "little"]], ...] = (
    ("image/png", re.compile(rb"\x89PNG\r\n\x1a\n.{4}IHDR(.{4})(.{4})", re.DOTALL), "big"),
    ("image/gif", re.compile(rb"GIF8[79]a(..)(..)", re.DOTALL), "little"),
    ("image/webp", re.compile(rb"RIFF.{4}WEBPVP8X.{8}(...)(...)", re.DOTALL), "little"),
)
"""Where width and height stand. Of WebP only the extended form is known here, and its sides are
one less than they are."""


def check_images(body: Json) -> Iterator[ApiError]:
    """What is wrong with the images; those beyond the limits are named in the error's details."""
    found = [image for n, m in enumerate(body["messages"]) for image in _images(f"messages.{n}", m)]
    limit = MANY_SIDE_PX if len(found) > MANY else SIDE_PX
    beyond: list[str] = []
    for where, source in found:
        if source.get("type") != "base64":
            continue
        place = f"{where}.image.source.base64"
        if source.get("media_type") not in MEDIA_TYPES:
            known = "'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
            yield ApiError(400, f"{place}.media_type: Input should be {known}")
        if not isinstance(source.get("data"), str):
            yield ApiError(400, f"{place}.data: Field required")
        if len(source["data"]) > BASE64_BYTES:
            yield ApiError(
                400,
                f"{place}: image exceeds 10 MB maximum: {len(source['data'])} bytes > "
                f"{BASE64_BYTES} bytes",
            )
        try:
            seen = _look(source["data"])
        except IndexError:
            seen = None
        if seen is None or 0 in seen:
            yield ApiError(400, "Could not process image")
            return
        media_type, width, height = seen
        if media_type != source["media_type"]:
            yield ApiError(
                400,
                f"{place}.data: Image does not match the provided media type "
                f"{source['media_type']}",
            )
        if max(width, height) > limit:
            beyond.append(where)
    if beyond:
        yield _too_large(beyond, limit)


def _images(where: str, holder: Json) -> Iterator[tuple[str, Json]]:
    for m, block in enumerate(blocks(holder.get("content", ""))):
        place = f"{where}.content.{m}"
        if block["type"] == "image":
            yield place, cast("Json", block["source"])
        elif block["type"] == "tool_result":
            yield from _images(place, block)


def _too_large(paths: list[str], limit: int) -> ApiError:
    for_many = " for many-image requests" if limit == MANY_SIDE_PX else ""
    message = f"{paths[0]}.image.source.base64.data: {TOO_LARGE}{for_many}: {limit} pixels"
    details = {
        "error_code": "image_dimensions_too_large",
        "paths": paths,
        "max_side_length_pixels": limit,
    }
    error = {"type": "invalid_request_error", "message": message, "details": details}
    return ApiError(400, message, body={"type": "error", "error": error})


def _look(data: str) -> tuple[str, int, int] | None:
    """Media type, width and height."""
    try:
        raw = base64.b64decode(data, validate=True)
    except ValueError:
        return None
    for media_type, pattern, order in HEADERS:
        if found := pattern.match(raw):
            width, height = (int.from_bytes(side, order) for side in found.groups())
            return media_type, width, height
    return _jpeg(raw) if raw.startswith(b"\xff\xd8\xff") else None


def _jpeg(raw: bytes) -> tuple[str, int, int]:
    at = 2
    while raw[at] == 0xFF and raw[at + 1] not in range(0xC0, 0xC3):
        at += 2 + int.from_bytes(raw[at + 2 : at + 4])
    return "image/jpeg", int.from_bytes(raw[at + 7 : at + 9]), int.from_bytes(raw[at + 5 : at + 7])
