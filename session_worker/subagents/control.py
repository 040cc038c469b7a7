"""One request to the daemon, which lets a worker make, see and end subagents of its own session."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.framing import encode


class NoDaemon(Exception):
    """Nobody answered; whether the request was acted on is not known."""


async def call(socket: Path, method: str, params: dict[str, Any], within_s: float) -> Any:
    """The result. Raises `NoDaemon`, and the daemon's own `SidecarError`."""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    try:
        async with asyncio.timeout(within_s):
            reply = json.loads(await _exchange(socket, encode(request)))
    except (OSError, TimeoutError, ValueError) as error:  # an empty line is no JSON either
        raise NoDaemon from error
    if "error" in reply:
        raise SidecarError.from_wire(reply["error"])
    return reply["result"]


async def _exchange(socket: Path, request: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(socket, limit=bounds.CONTROL_LINE_BYTES)
    try:
        writer.write(request)
        await writer.drain()
        return await reader.readline()
    finally:
        writer.close()
