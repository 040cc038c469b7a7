"""The text in a file's bytes, and those very bytes again.

Called by the file tools. Pure. Never loses a byte: what is no text in the file's encoding comes
through as surrogates and goes back as it was.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from sidecar.protocol.bounds import KIB

BINARY_HEAD_BYTES = 8 * KIB
"""A NUL in here makes a file binary: git and grep look as far."""

PDF = b"%PDF-"

_IMAGES = (b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a", b"\xff\xd8\xff")
_UNDECODED = re.compile(r"[\udc80-\udcff]")
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True)
class FileText:
    """`text` is without the byte order mark; `codec` and `bom` are for the way back."""

    text: str
    codec: str
    bom: bytes

    @property
    def is_legacy(self) -> bool:
        """Whether all that is not ASCII is not UTF-8 either: Latin-1 and the like."""
        return not self.text.isascii() and _UNDECODED.sub("", self.text).isascii()

    def encode(self, text: str) -> bytes:
        """`text` as bytes of this file; what came out of `text` unchanged is unchanged."""
        return self.bom + text.encode(self.codec, _errors(self.codec))


def sniff(head: bytes) -> tuple[str, bytes]:
    """Codec and byte order mark; without a mark it is taken for UTF-8."""
    for bom, codec in _BOMS:
        if head.startswith(bom):
            return codec, bom
    return "utf-8", b""


def is_image(head: bytes) -> bool:
    return head.startswith(_IMAGES) or (head[:4], head[8:12]) == (b"RIFF", b"WEBP")


def is_shown_whole(head: bytes) -> bool:
    """Whether it is for eyes: an image or a PDF."""
    return is_image(head) or head.startswith(PDF)


def is_binary(head: bytes) -> bool:
    codec, _ = sniff(head)
    if codec == "utf-8":
        return b"\0" in head[:BINARY_HEAD_BYTES]
    return head.startswith(codecs.BOM_UTF32_LE)  # starts like UTF-16


def decode(raw: bytes) -> FileText:
    """Raises UnicodeDecodeError for UTF-16 that ends within a character."""
    codec, bom = sniff(raw)
    return FileText(raw[len(bom) :].decode(codec, _errors(codec)), codec, bom)


def _errors(codec: str) -> str:
    return "surrogateescape" if codec == "utf-8" else "surrogatepass"
