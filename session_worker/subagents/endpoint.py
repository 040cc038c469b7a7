"""A subagent's own HTTP endpoint, as its parent uses it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import aiohttp

from session_worker.http.acp_r import AGENT_NAME
from sidecar.protocol import bounds
from sidecar.protocol.framing import LineSplitter, LineTooLong

Json = dict[str, Any]


class Unanswered(Exception):
    """The endpoint did not answer, or not what it should; its worker may be being restarted."""


class Endpoint:
    """All its methods raise `Unanswered`."""

    def __init__(self, info: Json, ring_bytes: int) -> None:
        """`info` is its SessionInfo; `ring_bytes` bounds its events."""
        self._path = f"/sessions/{info['session_id']}"
        self._event_bytes = ring_bytes
        self._http = aiohttp.ClientSession(
            "http://localhost",
            connector=aiohttp.UnixConnector(info["endpoint"]["socket"]),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=bounds.CONNECT_S, sock_read=bounds.STREAM_IDLE_S
            ),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.close()

    async def start(self, prompt: str) -> str:
        """Hand in a prompt; the id of its run."""
        message = {"role": "user", "parts": [{"content": prompt}]}
        body = {"agent_name": AGENT_NAME, "mode": "async", "input": [message]}
        return (await self._ask("POST", "/runs", body))["run_id"]

    async def result(self, run_id: str) -> Json | None:
        """The AgentLoopResult of a run, None while it goes on."""
        return (await self._ask("GET", f"/runs/{run_id}"))["result"]

    async def questions(self) -> list[Json]:
        """Those that wait for an answer."""
        return (await self._ask("GET", f"{self._path}/permissions"))["pending"]

    async def answer(self, request_id: str, option_id: str | None, reason: str) -> None:
        path = f"{self._path}/permissions/{quote(request_id, safe='')}"
        await self._ask("POST", path, {"option_id": option_id, "reason": reason})

    async def cancel(self) -> None:
        """Ends what runs there."""
        await self._ask("POST", f"{self._path}/cancel", {})

    async def events(self, after: int) -> AsyncGenerator[Json]:
        """Every envelope after the cursor `after`, live, until the stream ends. What fell out of
        the ring shows as one whose `type` is `gap`."""
        async with self._open("GET", f"{self._path}/events?after={after}") as response:
            lines, kind = LineSplitter(self._event_bytes), ""
            async for chunk in response.content.iter_any():
                for line in lines.feed(chunk):
                    name, _, value = line.partition(b": ")
                    if name == b"event":
                        kind = value.decode()
                    elif name == b"data":
                        data = json.loads(value)
                        yield {"type": kind, "seq": data["to"]} if kind == "gap" else data

    async def _ask(self, method: str, path: str, body: Json | None = None) -> Any:
        async with self._open(method, path, body) as response:
            return await response.json()

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, body: Json | None = None
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        try:
            async with self._http.request(method, path, json=body) as response:
                if response.status >= 400:
                    raise Unanswered(f"HTTP {response.status}")
                yield response
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, LineTooLong) as error:
            raise Unanswered(type(error).__name__) from error
