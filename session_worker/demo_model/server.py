"""The HTTP side of the demo model: the routes of the Messages API over one script.

Embedded in a worker when there is no key, and the model server of the tests. Refuses what the API
would refuse before it asks the script; keeps no secret it is sent.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from aiohttp import web

from session_worker.demo_model.conversation import segments
from session_worker.demo_model.intents import DEMO_MODEL_ID, demo_script
from session_worker.demo_model.reply import ApiError, Json, Request, Script
from session_worker.demo_model.rules import check_request
from session_worker.demo_model.stream import drop, send_stream
from session_worker.demo_model.usage import PromptCache, charge, input_tokens
from session_worker.demo_model.wire import identified, made_id, message_of, stream_events

UNIX_BASE_URL = "http://demo-model"
"""Base URL for clients on the Unix socket; the host is only a name."""
REQUEST_BYTES = 32 * 1024 * 1024
"""What the API takes (anthropic.md §3.4)."""
ATTEMPTS_KEPT = 256
"""Requests whose attempts are counted; a retry follows soon or never."""
SHUTDOWN_S = 1.0
"""For a connection to close once its reply has been cancelled: milliseconds."""
SECRETS = ("authorization", "x-api-key", "proxy-authorization", "cookie")

NO_ANSWER = ApiError(500, "the script has no answer to this call", {"x-should-retry": "false"})


@dataclass(frozen=True)
class Received:
    """A call as it came, without what its secret headers said; a `body` that is no JSON is None."""

    path: str
    headers: Mapping[str, str]
    body: Any
    raw: bytes


class DemoModel:
    """One script behind the Messages API.

    Without `models` every model name is served. Of the last `keep_requests` calls `requests`
    holds each, `unexpected` those that the script had no answer to.
    """

    def __init__(
        self, script: Script = demo_script, *, models: Sequence[str] = (), keep_requests: int = 0
    ) -> None:
        self.requests: deque[Received] = deque(maxlen=keep_requests)
        self.unexpected: deque[Received] = deque(maxlen=keep_requests)
        self._script = script
        self._models = models
        self._cache: PromptCache = {}
        self._attempts: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._replies: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def serve_tcp(self, port: int = 0) -> AsyncGenerator[str]:
        """Serves on 127.0.0.1 inside the block; yields the base URL."""
        listener = socket.create_server(("127.0.0.1", port))
        async with self._serving(listener):
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"

    @asynccontextmanager
    async def serve_unix(self, path: Path) -> AsyncGenerator[str]:
        """Serves on a socket file of ours alone, replacing a stale one; yields the base URL."""
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(path))
            path.chmod(0o600)  # before listening, so that nobody else connects first
            async with self._serving(listener):
                yield UNIX_BASE_URL
        finally:
            listener.close()
            path.unlink(missing_ok=True)

    @asynccontextmanager
    async def _serving(self, listener: socket.socket) -> AsyncGenerator[None]:
        app = web.Application(client_max_size=REQUEST_BYTES)
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_post("/v1/messages/count_tokens", self._count_tokens)
        app.router.add_get("/v1/models", self._list_models)
        app.on_shutdown.append(self._end_replies)
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_S
        )
        try:
            await runner.setup()
            await web.SockSite(runner, listener).start()
            yield
        finally:
            await runner.cleanup()

    async def _end_replies(self, _app: web.Application) -> None:
        for task in self._replies:
            task.cancel()
        await asyncio.gather(*self._replies, return_exceptions=True)

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._replies.add(task)
        try:
            return await self._answer(request)
        finally:
            self._replies.discard(task)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        request_id = made_id("req", str(next(self._numbers)))
        received = await self._receive(request)
        body = received.body
        refused = check_request(body, request.headers, self._models)
        if refused:
            return _refusal(refused, request_id)
        pieces = segments(body)
        digest = pieces[-1].digest
        answer = self._script(Request(body, self._attempt(digest)))
        if answer is None:
            self.unexpected.append(received)
            answer = NO_ANSWER
        if isinstance(answer, ApiError):
            return _refusal(answer, request_id)
        if not answer.fault:
            self._attempts.pop(digest, None)
        automatic: Json | None = body.get("cache_control")
        ttl: str | None = automatic.get("ttl", "5m") if automatic else None
        usage = charge(pieces, ttl, self._cache, time.monotonic())
        message_id = made_id("msg", f"{digest}.{request_id}")
        events = stream_events(identified(answer, digest), message_id, body["model"], usage)
        if body.get("stream"):
            return await send_stream(request, answer, events, request_id)
        if answer.fault:
            drop(request, "cut")
        return web.json_response(message_of(events), headers={"request-id": request_id})

    async def _count_tokens(self, request: web.Request) -> web.Response:
        request_id = made_id("req", str(next(self._numbers)))
        body = (await self._receive(request)).body
        whole: Any = {"max_tokens": 1, **cast("Json", body)} if isinstance(body, dict) else body
        refused = check_request(whole, request.headers, self._models)
        if refused:
            return _refusal(refused, request_id)
        return web.json_response({"input_tokens": input_tokens(segments(whole))})

    async def _list_models(self, _request: web.Request) -> web.Response:
        names = self._models or (DEMO_MODEL_ID,)
        data = [
            {
                "type": "model",
                "id": name,
                "display_name": name,
                "created_at": "1970-01-01T00:00:00Z",
                "lifecycle": "active",
            }
            for name in names
        ]
        ends = {"first_id": names[0], "last_id": names[-1]}
        return web.json_response({"data": data, "has_more": False, **ends})

    async def _receive(self, request: web.Request) -> Received:
        raw = await request.read()
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        headers = {
            name.lower(): "[redacted]" if name.lower() in SECRETS else value
            for name, value in request.headers.items()
        }
        received = Received(request.path, headers, body, raw)
        self.requests.append(received)
        return received

    def _attempt(self, digest: str) -> int:
        self._attempts[digest] = number = self._attempts.pop(digest, 0) + 1
        if len(self._attempts) > ATTEMPTS_KEPT:
            del self._attempts[next(iter(self._attempts))]
        return number


def serve_unix(path: Path) -> AbstractAsyncContextManager[str]:
    """The demo model as a worker embeds it: the intents, and nothing kept of what is sent."""
    return DemoModel().serve_unix(path)


def _refusal(error: ApiError, request_id: str) -> web.Response:
    headers = {"request-id": request_id, **error.headers}
    if isinstance(error.body, str):
        return web.Response(
            status=error.status, text=error.body, content_type="text/html", headers=headers
        )
    return web.json_response(error.payload(request_id), status=error.status, headers=headers)
