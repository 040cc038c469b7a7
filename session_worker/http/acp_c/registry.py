"""The ACP-C connections of this worker: found by their id, bounded in number."""

from __future__ import annotations

import time

from session_worker.core import SessionCore
from session_worker.http.acp_c.connection import Connection
from session_worker.http.errors import HttpError

CONNECTIONS_MAX = 100
"""Open connections of one session: each may hold two streams, and everybody is sent everything."""
CONNECTION_IDLE_S = 600.0
"""A connection that no stream of was open and nothing was said on for so long may go when there is
no room for another: what its client would come back to, `session/load` has as well."""


class Registry:
    """One per application; its event loop is the only one that touches it."""

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}

    def open(self, core: SessionCore, *, single_stream: bool) -> Connection:
        """Raises `HttpError` (503) when there are too many."""
        if len(self._connections) >= CONNECTIONS_MAX:
            self._forget_idle()
        if len(self._connections) >= CONNECTIONS_MAX:
            raise HttpError(503, "overloaded", f"{CONNECTIONS_MAX} clients are connected already")
        connection = Connection(core, single_stream=single_stream)
        self._connections[connection.id] = connection
        return connection

    def find(self, connection_id: str) -> Connection | None:
        """One that HTTP requests belong to."""
        connection = self._connections.get(connection_id)
        if connection is None or connection.single_stream:
            return None
        connection.used_at = time.monotonic()
        return connection

    def close(self, connection: Connection) -> None:
        """Its streams end; its runs go on."""
        self._connections.pop(connection.id, None)
        connection.close()

    def _forget_idle(self) -> None:
        long_ago = time.monotonic() - CONNECTION_IDLE_S
        for connection in list(self._connections.values()):
            if not connection.streaming and connection.used_at < long_ago:
                self.close(connection)
