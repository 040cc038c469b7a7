"""A non-blocking line stream for the shim's select loop: one end of a link.

Lines are JSON objects (`sidecar.protocol.framing`). `send` never blocks: what the peer does
not take is kept, and of the snapshots given to `tell` only the newest is.
"""

from __future__ import annotations

import json
import socket
from typing import Any

from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.framing import LineSplitter, encode


class LineSocket:
    """Raises nothing for a dead peer: `closed` turns true, and the owner drops it."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.closed = False
        self._lines = LineSplitter(bounds.SHIM_LINE_BYTES)
        self._unsent = bytearray()
        self._newest: dict[str, Any] | None = None

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message that must arrive."""
        self._unsent += encode(message)
        self.flush()

    def tell(self, snapshot: dict[str, Any]) -> None:
        """Send `snapshot`; an unsent older one is replaced."""
        self._newest = snapshot
        self.flush()

    @property
    def wants_write(self) -> bool:
        return bool(self._unsent) and not self.closed

    def flush(self) -> None:
        """Hand the kernel what it takes now."""
        while not self.closed:
            if not self._unsent:
                if self._newest is None:
                    return
                self._unsent += encode(self._newest)
                self._newest = None
            try:
                sent = self.sock.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            del self._unsent[:sent]

    def receive(self) -> list[dict[str, Any]]:
        """The messages that have arrived; closes at end of stream or at garbage."""
        try:
            chunk = self.sock.recv(64 * bounds.KIB)
            if not chunk:
                raise ConnectionResetError
            messages = [json.loads(line) for line in self._lines.feed(chunk)]
        except BlockingIOError:
            return []
        except (OSError, ValueError, SidecarError):
            self.close()
            return []
        return [message for message in messages if isinstance(message, dict)]

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.sock.close()
