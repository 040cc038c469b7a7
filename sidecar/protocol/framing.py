"""One JSON value per line, UTF-8, ended by LF: the framing of every stream of ours.

Framed in bytes: `str.splitlines` would also break lines at U+2028.
"""

from __future__ import annotations

import json
from typing import Any

from sidecar.protocol.errors import SidecarError

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class LineTooLong(SidecarError):
    """The peer sent more than `limit` bytes without a line end; the stream cannot go on."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            "invalid_request",
            f"a line is longer than {limit} bytes",
            "send one JSON value per line, and large inputs through a file or the data plane",
        )


def encode(value: Any) -> bytes:
    """`value` as one line. Raises TypeError or ValueError for what JSON cannot carry.

    ASCII only: a lone surrogate from a broken tool output stays a `\\ud800` escape instead of
    an encoding error.
    """
    return _encode(value).encode() + b"\n"


class LineSplitter:
    """Cuts a byte stream into lines without their LF; at most `limit` bytes are ever held."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes. Raises `LineTooLong`."""
        first, *rest = chunk.split(b"\n")
        self._held += first
        if not rest:
            self._check(len(self._held))
            return []
        lines = [bytes(self._held), *rest[:-1]]
        self._held = bytearray(rest[-1])
        for line in (*lines, self._held):
            self._check(len(line))
        return lines

    def _check(self, length: int) -> None:
        if length > self.limit:
            raise LineTooLong(self.limit)
