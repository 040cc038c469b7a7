"""stdin and stdout as one JSON value per line, for a program that must never stand still.

Two threads do the blocking reads and writes, so that a pipe, a file, a terminal and a socket are
all the same, and none of them is switched to non-blocking under those who share it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

from sidecar.protocol import bounds

LINE_BYTES = bounds.HTTP_BODY_BYTES
"""Longest line of an editor: what a session's endpoint takes. A longer one is skipped."""
UNREAD_BYTES = 64 * bounds.MIB
"""What an editor may leave unread; then the sessions' updates wait, never a session."""
FLUSH_S = 0.5
"""The last lines are taken by the editor within this, or nobody wants them."""
_CHUNK_BYTES = 64 * bounds.KIB
"""One read or write of a thread: what a pipe of Linux holds."""


class Stdio:
    """Both streams. Made by `open`, ended by `close`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_end: socket.socket,
        writing: threading.Thread,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._far_end = far_end
        self._writing = writing

    @classmethod
    async def open(cls, source: int, sink: int) -> Stdio:
        """The file descriptors `source` and `sink`, which stay the caller's."""
        near_end, far_end = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=near_end, limit=LINE_BYTES)
        writer.transport.set_write_buffer_limits(high=UNREAD_BYTES)
        writing = threading.Thread(target=_write, args=(far_end, sink), daemon=True)
        writing.start()
        threading.Thread(target=_read, args=(source, far_end), daemon=True).start()
        return cls(reader, writer, far_end, writing)

    async def lines(self) -> AsyncIterator[bytes | None]:
        """Each line that is not blank, until the end of the input; None for one too long."""
        whole = True
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as overrun:
                await self._reader.readexactly(overrun.consumed)
                whole = False
                continue
            except asyncio.IncompleteReadError as end:
                if whole and end.partial.strip():
                    yield end.partial
                return
            if not whole or line.strip():
                yield line if whole else None
            whole = True

    async def send(self, line: bytes) -> None:
        """One line, its end included. Waits only while `UNREAD_BYTES` are unread.

        Raises ConnectionError once nobody reads stdout any more.
        """
        self._writer.write(line)
        await self._writer.drain()

    async def close(self) -> None:
        """Hands out what was sent, for `FLUSH_S` at most."""
        with suppress(OSError):
            self._writer.write_eof()
        await asyncio.to_thread(self._writing.join, FLUSH_S)
        self._writer.transport.abort()
        self._far_end.close()


def _read(source: int, far_end: socket.socket) -> None:
    with suppress(OSError):  # stdin is broken, or we are leaving: like its end
        while chunk := os.read(source, _CHUNK_BYTES):
            far_end.sendall(chunk)
    with suppress(OSError):
        far_end.shutdown(socket.SHUT_WR)


def _write(far_end: socket.socket, sink: int) -> None:
    with suppress(OSError):  # nobody reads stdout
        while chunk := far_end.recv(_CHUNK_BYTES):
            while chunk:
                chunk = chunk[os.write(sink, chunk) :]
    with suppress(OSError):
        far_end.shutdown(socket.SHUT_RD)
        while far_end.recv(_CHUNK_BYTES):
            pass  # a near end whose buffer is full is not told otherwise
