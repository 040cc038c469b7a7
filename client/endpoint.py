"""The HTTP endpoint of one session, over its Unix socket (design §5).

aiohttp is imported by the first request, so that whoever only lists sessions does not pay.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, cast

from client.errors import ConnectionLost, EndpointRefusal, Unreachable
from client.sse import SseParser
from sidecar.protocol import bounds
from sidecar.protocol.events import GAP, Envelope, now_iso
from sidecar.protocol.session_info import SessionInfo

if TYPE_CHECKING:
    import aiohttp

AGENT = "sidecar"


def run_request(text: str, mode: str, *, steer: bool = False) -> dict[str, Any]:
    """The body of `POST /runs` for a prompt of plain text; with `steer` one that does not wait
    for the end of the run under way."""
    message = {"role": "user", "parts": [{"content": text}]}
    request: dict[str, Any] = {"agent_name": AGENT, "mode": mode, "input": [message]}
    return {**request, "steer": True} if steer else request


async def fetch(
    info: SessionInfo,
    method: str,
    path: str,
    body: dict[str, Any] | None = None,
    *,
    silence_s: float | None = bounds.STREAM_IDLE_S,
) -> bytes:
    """The whole answer to one request, which may take `silence_s` to begin; None waits for as
    long as the worker lives. Raises `SidecarError`."""
    async with _request(info, method, path, body, silence_s) as response:
        return await response.read()


async def events(info: SessionInfo, after: int) -> AsyncGenerator[Envelope]:
    """The session's events after `after`, live, until the stream ends or is lost.

    What fell out of the ring shows as one envelope of type `gap`.
    """
    path = f"/sessions/{info['session_id']}/events?after={after}"
    async with _request(info, "GET", path) as response:
        parser = SseParser()
        async for chunk in response.content.iter_any():
            for event in parser.feed(chunk):
                data: Any = json.loads(event.data)
                yield gap(data) if event.name == GAP else cast(Envelope, data)


def gap(data: dict[str, int]) -> Envelope:
    """The envelope of a `gap`; its `seq` is the last one missed, so that it is a cursor too."""
    return {"seq": data["to"], "at": now_iso(), "run_id": None, "type": GAP, "data": data}


@contextlib.asynccontextmanager
async def _request(
    info: SessionInfo,
    method: str,
    path: str,
    body: dict[str, Any] | None = None,
    silence_s: float | None = bounds.STREAM_IDLE_S,
) -> AsyncGenerator[aiohttp.ClientResponse]:
    import aiohttp

    where = info["endpoint"]
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=bounds.CONNECT_S, sock_read=silence_s)
    connector = aiohttp.UnixConnector(where["socket"])
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as http,
            http.request(method, f"http://localhost{path}", json=body) as response,
        ):
            if response.status >= 400:
                raise await _refusal(response)
            yield response
    except aiohttp.ClientConnectorError as error:
        raise Unreachable(
            f"session {info['name']} does not answer at {where['socket']}",
            f"sidecarctl session show {info['session_id']}",
        ) from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ConnectionLost(
            f"lost session {info['name']}: {error or 'it fell silent'}",
            f"sidecarctl session show {info['session_id']}",
        ) from error


async def _refusal(response: aiohttp.ClientResponse) -> EndpointRefusal:
    text = await response.text(errors="replace")
    try:
        answer = json.loads(text)
        code, message = str(answer["code"]), str(answer["message"])
    except (ValueError, KeyError, TypeError):
        code, message = "server_error", f"HTTP {response.status}: {text[: bounds.ERROR_TEXT_CHARS]}"
    return EndpointRefusal(response.status, code, message)
