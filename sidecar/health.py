"""Asking a session's endpoint whether it serves: `GET /healthz`, by hand.

An HTTP client library would cost the daemon 30 MB and 0.2 s for one fixed request.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from sidecar.protocol import bounds

_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class Unhealthy(Exception):
    """The endpoint answers, but not as this session's worker would."""


async def check(endpoint: Path, session_id: str) -> None:
    """Raises `Unhealthy`, OSError or TimeoutError."""
    async with asyncio.timeout(bounds.HEALTH_S):
        reader, writer = await asyncio.open_unix_connection(endpoint)
        try:
            writer.write(_REQUEST)
            answer = await reader.read(64 * bounds.KIB)
            while chunk := await reader.read(64 * bounds.KIB):
                answer += chunk
        finally:
            writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        raise Unhealthy(head.decode(errors="replace")[:200])
    if json.loads(body).get("session_id") != session_id:
        raise Unhealthy("another session answers there")
