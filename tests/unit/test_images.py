"""What an image is, is read off its bytes."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from session_worker import images
from session_worker.demo_model.rules import check_request

HEADERS = {"x-api-key": "k", "anthropic-version": "2026-10-21"}

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 640, 480)
GIF = b"GIF89a" + struct.pack("<HH", 640, 480)
EXIF = b"\xff\xe1" + struct.pack(">H", 12) + b"\xff\xc0\x00\x08\x08\x00\x01\x00\x01\x00"
JPEG = b"\xff\xd8" + EXIF + b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", 480, 640)
FILLED = b"\xff\xd8\xff\xff\xd0" + EXIF + b"\xff\xc4\x00\x02\xff\xc0\x00\x11\x08\x01\xe0\x02\x80"
WEBP = b"RIFF\0\0\0\0WEBP"
VP8 = WEBP + b"VP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 640 | 1 << 14, 480)
VP8L = WEBP + b"VP8L\0\0\0\0\x2f" + struct.pack("<I", 639 | 479 << 14)
VP8X = WEBP + b"VP8X\0\0\0\0\0\0\0\0" + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")
KNOWN = {
    "image/png": [PNG],
    "image/gif": [GIF],
    "image/jpeg": [JPEG, FILLED],
    "image/webp": [VP8, VP8L, VP8X],
}


def image(data: bytes | str, media_type: str = "image/png") -> dict[str, Any]:
    words = data if isinstance(data, str) else base64.b64encode(data).decode()
    source = {"type": "base64", "media_type": media_type, "data": words}
    return {"type": "image", "source": source}


def refusal(*blocks: dict[str, Any]) -> Any:
    messages = [{"role": "user", "content": list(blocks)}]
    return check_request({"model": "m", "max_tokens": 9, "messages": messages}, HEADERS)


@pytest.mark.parametrize(
    ("media_type", "data"), [(kind, data) for kind, known in KNOWN.items() for data in known]
)
def test_the_header_tells_kind_and_size(media_type: str, data: bytes) -> None:
    seen = images.look(image(data))
    assert seen == images.Seen(media_type, 640, 480)
    sound = images.sound(image(data, "image/x"))
    assert isinstance(sound, dict)
    assert sound["source"]["media_type"] == media_type
    for end in range(len(data)):
        assert images.look(image(data[:end])) in (None, seen)


@pytest.mark.parametrize(
    ("block", "wrong"),
    [
        (image(b"plain text"), "unreadable"),
        (image("not base64!"), "unreadable"),
        (image(""), "unreadable"),
        (image(PNG[:16] + struct.pack(">II", 0, 9)), "unreadable"),
        (image(PNG[:16] + struct.pack(">II", 9, 8001)), "9 by 8001 pixels, more than 8000"),
        (image("A" * (images.BASE64_BYTES + 4)), "10485764 bytes, more than 10485760"),
        ({"type": "image", "source": {"type": "base64"}}, "no data"),
        ({"type": "image", "source": {}}, "no data"),
        ({"type": "image", "source": {"type": "url", "url": ""}}, "no address"),
    ],
)
def test_what_the_api_would_refuse_is_named(block: dict[str, Any], wrong: str) -> None:
    assert images.sound(block) == wrong


@pytest.mark.parametrize("source", [{"type": "url", "url": "u"}, {"type": "file", "file_id": "f"}])
def test_an_image_that_is_elsewhere_is_left_to_the_api(source: dict[str, Any]) -> None:
    block = {"type": "image", "source": source}
    assert images.sound(block) is block
    assert images.side(block) == 0


def test_the_model_server_takes_the_images_we_would_send() -> None:
    known = [image(PNG), image(GIF, "image/gif"), image(VP8X, "image/webp")]
    assert refusal(*known, image(JPEG, "image/jpeg")) is None


@pytest.mark.parametrize(
    ("block", "wording"),
    [
        (image(PNG, "image/bmp"), "media_type: Input should be 'image/jpeg', 'image/png', "),
        (image(b"text"), "Could not process image"),
        (image("not base64!"), "Could not process image"),
        (image(JPEG[:18], "image/jpeg"), "Could not process image"),
        (
            image(PNG, "image/gif"),
            "messages.0.content.0.image.source.base64.data: Image does not match the provided "
            "media type image/gif",
        ),
        (
            image("A" * (images.BASE64_BYTES + 4)),
            "image exceeds 10 MB maximum: 10485764 bytes > 10485760 bytes",
        ),
    ],
)
def test_the_model_server_refuses_an_image_in_the_words_of_the_api(
    block: dict[str, Any], wording: str
) -> None:
    assert wording in refusal(block).message


def test_the_model_server_names_the_images_that_are_too_large() -> None:
    large = image(PNG[:16] + struct.pack(">II", 2001, 9))
    assert refusal(large, *[image(PNG)] * 19) is None
    error = refusal(large, *[image(PNG)] * 20)
    assert error.message == (
        "messages.0.content.0.image.source.base64.data: At least one of the image dimensions "
        "exceed max allowed size for many-image requests: 2000 pixels"
    )
    assert error.payload("r")["error"]["details"] == {
        "error_code": "image_dimensions_too_large",
        "paths": ["messages.0.content.0"],
        "max_side_length_pixels": 2000,
    }
    huge = image(PNG[:16] + struct.pack(">II", 8001, 9))
    assert refusal(huge).message.endswith("exceed max allowed size: 8000 pixels")
