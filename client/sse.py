"""Server-sent events as a session's endpoint writes them: one `data:` line an event. Pure."""

from __future__ import annotations

from typing import NamedTuple

from sidecar.protocol import bounds
from sidecar.protocol.framing import LineSplitter

_LINE_BYTES = bounds.RING_MAX_BYTES // 4
"""An event of more than a quarter of its ring is stored cut (design §6)."""


class ServerSentEvent(NamedTuple):
    name: str
    data: bytes


class SseParser:
    """Cuts a byte stream into events; comments and unknown fields are skipped."""

    def __init__(self) -> None:
        self._lines = LineSplitter(_LINE_BYTES)
        self._name = ""
        self._data = b""

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that `chunk` completes. Raises `LineTooLong`."""
        events: list[ServerSentEvent] = []
        for line in self._lines.feed(chunk):
            field, _, value = line.removesuffix(b"\r").partition(b":")
            value = value.removeprefix(b" ")
            if field == b"event":
                self._name = value.decode(errors="replace")
            elif field == b"data":
                self._data = value
            elif not field and not value and self._data:
                events.append(ServerSentEvent(self._name, self._data))
                self._name, self._data = "", b""
        return events
