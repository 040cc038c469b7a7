"""Requests byte for byte, for what no HTTP library would send, to either socket of a session."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

ANSWER_S = 60.0
"""Longest silence of the endpoint in a test."""


@dataclass(frozen=True)
class Answer:
    """`headers` have lower-case names. No bytes at all is status 0."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class RawHttp:
    """`address` is a path or a port on 127.0.0.1; `headers` go with each request."""

    address: str | int
    headers: Mapping[str, str]

    @classmethod
    def over_unix(cls, info: Mapping[str, Any]) -> RawHttp:
        return cls(info["endpoint"]["socket"], {"Host": "localhost"})

    @classmethod
    def over_tcp(cls, info: Mapping[str, Any]) -> RawHttp:
        """With the token."""
        host = info["endpoint"]["url"].removeprefix("http://")
        headers = {"Host": host, "Authorization": f"Bearer {info['endpoint']['token']}"}
        return cls(int(host.rpartition(":")[2]), headers)

    def without_token(self) -> RawHttp:
        return RawHttp(self.address, {"Host": self.headers["Host"]})

    def connect(self) -> socket.socket:
        unix = isinstance(self.address, str)
        sock = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        sock.settimeout(ANSWER_S)
        try:
            sock.connect(self.address if unix else ("127.0.0.1", self.address))
        except OSError:
            sock.close()
            raise
        return sock

    def ask(self, line: str = "GET /healthz", body: bytes = b"", **headers: str) -> Answer:
        return self.send(self.compose(line, body, **headers))

    def compose(self, line: str, body: bytes = b"", **headers: str) -> bytes:
        """`line` is method and target. A header with an empty value is left out."""
        all_headers = {**self.headers, "Connection": "close", **headers}
        if body:
            all_headers.setdefault("Content-Length", str(len(body)))
        lines = [f"{line} HTTP/1.1", *(f"{k}: {v}" for k, v in all_headers.items() if v)]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    def post(self, path: str, value: Any, **headers: str) -> Answer:
        headers = {"Content-Type": "application/json", **headers}
        return self.ask(f"POST {path}", json.dumps(value).encode(), **headers)

    def send(self, request: bytes) -> Answer:
        """What comes back until the end of the connection."""
        with self.connect() as sock:
            with suppress(ConnectionError):  # it has seen enough, and may have said so
                sock.sendall(request)
            return receive(sock)


def receive(sock: socket.socket) -> Answer:
    answer = b""
    with suppress(ConnectionError):
        while chunk := sock.recv(65536):
            answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    named = (line.partition(": ") for line in lines)
    return Answer(int(first.split()[1]) if first else 0, {k.lower(): v for k, _, v in named}, body)
