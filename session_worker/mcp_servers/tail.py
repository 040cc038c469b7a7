"""The end of what a server wrote to stderr."""

from __future__ import annotations

from session_worker.tools.truncate import clean
from sidecar.protocol.bounds import KIB

TAIL_BYTES = 64 * KIB
"""Of a server's stderr in memory: it explains an end, it is no log."""
LINES_SHOWN = 8
"""With the reason why a server is not there; the model reads it."""
LINE_CHARS = 400


class Tail:
    def __init__(self) -> None:
        self._held = bytearray()

    def add(self, data: bytes) -> None:
        self._held += data[-TAIL_BYTES:]
        del self._held[:-TAIL_BYTES]

    def __len__(self) -> int:
        return len(self._held)

    def last_lines(self) -> str:
        lines = clean(self._held.decode(errors="replace")).rstrip().splitlines()[-LINES_SHOWN:]
        return "\n".join(line[:LINE_CHARS] for line in lines)
