"""A control client of a few lines, so that tests depend on the wire and not on our client."""

from __future__ import annotations

import itertools
import json
import socket
from pathlib import Path
from typing import Any

ANSWER_S = 60.0
"""Longest wait for a reply; creates and destroys answer well within it."""


class CallFailed(Exception):
    """The daemon answered an error; `code` is its `data.code`."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['data']['code']}: {error['message']}")
        self.error = error
        self.code: str = error["data"]["code"]


class Control:
    """One connection. Notifications that arrive meanwhile are kept in `notifications`."""

    def __init__(self, path: Path) -> None:
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.settimeout(ANSWER_S)
        try:
            self._sock.connect(str(path))
        except OSError:
            self._sock.close()
            raise
        self._file = self._sock.makefile("rb")
        self._ids = itertools.count(1)
        self.notifications: list[dict[str, Any]] = []

    def call(self, method: str, **params: Any) -> Any:
        """The result. Raises `CallFailed`."""
        request_id = next(self._ids)
        self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        while True:
            reply = self.receive()
            if reply.get("id") == request_id:
                if "error" in reply:
                    raise CallFailed(reply["error"])
                return reply["result"]
            self.notifications.append(reply)

    def send(self, value: Any) -> None:
        self.send_raw(json.dumps(value).encode() + b"\n")

    def send_raw(self, data: bytes) -> None:
        self._sock.sendall(data)

    def receive(self) -> dict[str, Any]:
        """The next line. Raises EOFError at the end of the stream."""
        line = self._file.readline()
        if not line:
            raise EOFError
        return json.loads(line)

    def notification(self) -> dict[str, Any]:
        return self.notifications.pop(0) if self.notifications else self.receive()

    def close(self) -> None:
        self._file.close()
        self._sock.close()
