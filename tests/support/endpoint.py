"""A session's HTTP endpoint from a test: plain `http.client` over its Unix socket."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ANSWER_S = 60.0
"""Longest silence of the endpoint in a test; keep-alives come every 15 s."""


class Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(ANSWER_S)
        self.sock.connect(self._path)


class Endpoint:
    """The data plane of one session."""

    def __init__(self, info: dict[str, Any]) -> None:
        self.session_id: str = info["session_id"]
        self.path: str = info["endpoint"]["socket"]

    @contextmanager
    def request(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> Iterator[http.client.HTTPResponse]:
        connection = Connection(self.path)
        try:
            data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json"} | headers)
            yield connection.getresponse()
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        with self.request("GET", path, **headers) as response:
            return response.status, json.loads(response.read())

    def post(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        with self.request("POST", path, body, **headers) as response:
            return response.status, json.loads(response.read())

    def prompt(self, text: str, mode: str = "sync") -> dict[str, Any]:
        """The Run."""
        status, run = self.post("/runs", run_request(text, mode))
        assert status in (200, 202), run
        return run

    def events(self, after: int = 0) -> list[dict[str, Any]]:
        """What the ring holds after `after`; a gap comes as `{"from", "to"}`."""
        with self.stream("GET", f"/sessions/{self.session_id}/events?after={after}&follow=0") as s:
            return list(s)

    @contextmanager
    def stream(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> Iterator[Iterator[dict[str, Any]]]:
        """The `data` of each server-sent event, as it comes."""
        with self.request(method, path, body, **headers) as response:
            assert response.status == 200, response.read()
            yield _data(response)


def _data(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in response:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def run_request(text: str, mode: str = "sync") -> dict[str, Any]:
    message = {"role": "user", "parts": [{"content": text}]}
    return {"agent_name": "sidecar", "mode": mode, "input": [message]}
