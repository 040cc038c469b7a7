"""A server's output, cut into lines. Pure; no line is so long that it ends the reading."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sidecar.protocol import mcp_bounds

_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2.0"\s*,\s*)?"id"\s*:\s*(\d+)')
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2.0"\s*)?\}\s*\Z')


@dataclass(frozen=True)
class TooLong:
    """What is known of a line longer than MCP_LINE_BYTES: the request it answered, or not."""

    id: int | None


class Lines:
    """Cuts a server's output into lines, each byte copied a bounded number of times."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._cut = False

    def feed(self, chunk: bytes) -> Iterator[bytes | TooLong]:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._add(end)
            yield self._take()
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._held += part
        if len(self._held) > mcp_bounds.MCP_LINE_BYTES:
            self._cut = True
            del self._held[mcp_bounds.MCP_LINE_END_BYTES : -mcp_bounds.MCP_LINE_END_BYTES]

    def _take(self) -> bytes | TooLong:
        line, cut = bytes(self._held), self._cut
        self._held, self._cut = bytearray(), False
        if not cut:
            return line
        found = _ID_FIRST.match(line) or _ID_LAST.search(line)
        return TooLong(int(found[1]) if found else None)
