"""Pushes the worker's state to its shim: latest wins, never blocking (design §2)."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from sidecar.protocol.framing import encode


class Reporter:
    """Reports are merged until the link takes them; a full link costs the loop nothing."""

    def __init__(self, link: socket.socket) -> None:
        link.setblocking(False)
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._report: dict[str, Any] = {}
        self._unsent = b""

    def report(self, **members: Any) -> None:
        """Tell the shim these members of the session's word."""
        self._report |= members
        self._flush()

    def _flush(self) -> None:
        if not self._unsent and self._report:
            self._unsent, self._report = encode({"report": self._report}), {}
        try:
            self._unsent = self._unsent[self._link.send(self._unsent) :] if self._unsent else b""
        except BlockingIOError:
            pass
        except OSError:
            return  # the shim is gone, and the kernel is about to end us
        if self._unsent:
            self._loop.add_writer(self._link, self._on_writable)

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._link)
        self._flush()
