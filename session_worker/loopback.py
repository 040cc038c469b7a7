"""A session's socket on 127.0.0.1, and the token that opens it; made and kept by the shim.

The token is in the memory of shim, worker and daemon, and in answers to clients of the control
plane. It is never written: not to a file, a log, an argument or an environment.
"""

from __future__ import annotations

import secrets
import socket
from dataclasses import dataclass, field
from typing import Any

from sidecar.protocol import bounds

TOKEN_BYTES = 32
"""256 bits: nobody guesses it, however long a session lives (peers.md §D 2)."""
_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Loopback:
    """Stays the same for as long as the shim lives: through crashes and sleep of its workers."""

    listener: socket.socket
    token: str = field(repr=False)

    @classmethod
    def open(cls) -> Loopback:
        """On a port that the system chooses. Raises OSError."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.bind((_HOST, 0))
            listener.listen(bounds.ENDPOINT_BACKLOG)
        except OSError:
            listener.close()
            raise
        return cls(listener, secrets.token_hex(TOKEN_BYTES))

    @property
    def port(self) -> int:
        return self.listener.getsockname()[1]

    def to_word(self) -> dict[str, Any]:
        """For the daemon, which tells its clients."""
        return {"url": f"http://{_HOST}:{self.port}", "token": self.token}

    def to_spec(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """For the worker, beside what the session's specification says."""
        return {**wanted, "port": self.port, "token": self.token}
