"""Prompts that hold images, over the Agent Communication Protocol."""

import base64
import struct
import zlib
from typing import Any

import pytest

from tests.support.scripted import FINE, Scripted


def png(width: int = 1, height: int = 1) -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" * (1 + 3 * width) * height)
    raw = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return base64.b64encode(raw).decode()


def image(data: str, media_type: str = "image/png", encoding: str = "base64") -> dict[str, Any]:
    return {"content_type": media_type, "content_encoding": encoding, "content": data}


def request(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"agent_name": "sidecar", "mode": "sync", "input": [{"role": "user", "parts": parts}]}


def test_an_image_reaches_the_model_and_later_workers(scripted: Scripted) -> None:
    scripted.answers.append(FINE)
    status, run = scripted.endpoint.post(
        "/runs", request({"content": "what is this?"}, image(png(), "image/gif"))
    )
    assert (status, run["status"]) == (200, "completed"), run
    text, shown = scripted.sent[-1]["content"]
    assert text["text"] == "what is this?"
    assert shown["source"] == {"type": "base64", "media_type": "image/png", "data": png()}
    kinds = [e["content"]["type"] for e in scripted.events("update") if "content" in e]
    assert kinds[:2] == ["text", "image"]
    scripted.crash()
    assert scripted.prompt(FINE)["status"] == "completed"
    assert scripted.sent[0]["content"][1]["source"]["data"] == png()


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (image("AAAA"), "unreadable"),
        (image("not base64!"), "unreadable"),
        (image(png(9000, 1)), "9000 by 1 pixels"),
        (image(png(), "image/tiff"), "not image/tiff"),
        (image(png(), encoding="plain"), "parts are plain text"),
        ({"content_url": "http://example.org/x.png", "content_type": "image/png"}, "parts are"),
    ],
)
def test_an_image_that_the_api_would_refuse_is_refused_at_once(
    scripted: Scripted, part: dict[str, Any], why: str
) -> None:
    status, error = scripted.endpoint.post("/runs", request({"content": "look"}, part))
    assert status == 422 and why in error["message"], error
    assert scripted.model.requests == []
