"""The end of what a server wrote to stderr."""

from __future__ import annotations

from session_worker.tools.truncate import clean
from sidecar.protocol import mcp_bounds


class Tail:
    def __init__(self) -> None:
        self._held = bytearray()

    def add(self, data: bytes) -> None:
        self._held += data[-mcp_bounds.MCP_STDERR_BYTES :]
        del self._held[: -mcp_bounds.MCP_STDERR_BYTES]

    def __len__(self) -> int:
        return len(self._held)

    def last_lines(self) -> str:
        lines = clean(self._held.decode(errors="replace")).rstrip().splitlines()
        last = lines[-mcp_bounds.MCP_STDERR_LINES :]
        return "\n".join(line[: mcp_bounds.MCP_STDERR_LINE_CHARS] for line in last)
