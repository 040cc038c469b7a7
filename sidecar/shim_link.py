"""The daemon's end of the line to one shim (`session_worker/shim.py` has the words)."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from sidecar.protocol import bounds
from sidecar.protocol.framing import encode

Word = dict[str, Any]


class ShimLink:
    """Words come in, operations go out."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, sock: socket.socket) -> ShimLink:
        """The link that a new shim was born with."""
        return cls(*await asyncio.open_unix_connection(sock=sock, limit=bounds.SHIM_LINE_BYTES))

    @classmethod
    async def to(cls, path: Path) -> ShimLink:
        """A link to a running shim. Raises OSError, TimeoutError."""
        async with asyncio.timeout(bounds.CONNECT_S):
            return cls(*await asyncio.open_unix_connection(path, limit=bounds.SHIM_LINE_BYTES))

    async def words(self) -> AsyncIterator[Word]:
        """Every word, newest last, until the shim ends or says what is no word."""
        while True:
            try:
                line = await self._reader.readline()
                if not line:
                    return
                yield json.loads(line)["word"]
            except (OSError, ValueError, KeyError):
                return

    async def send(self, operation: dict[str, Any]) -> None:
        """Raises OSError, or TimeoutError for a shim that does not listen."""
        self._writer.write(encode(operation))
        async with asyncio.timeout(bounds.SHIM_REPLY_S):
            await self._writer.drain()

    def close(self) -> None:
        self._writer.close()
