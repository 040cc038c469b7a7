"""The way from a model client to the demo model, which is served from the first request on."""

from __future__ import annotations

import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2

from session_worker.demo_model import serve_unix


class DemoTransport(httpx2.AsyncBaseTransport):
    """A session that is never prompted has no server, no client and no socket at `path`."""

    def __init__(self, path: Path, tls: ssl.SSLContext) -> None:
        self._path = path
        self._tls = tls  # never used, but the transport would build one of its own
        self._opened = AsyncExitStack()
        self._inner: httpx2.AsyncHTTPTransport | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._inner is None:
            await self._opened.enter_async_context(serve_unix(self._path))
            self._inner = httpx2.AsyncHTTPTransport(uds=str(self._path), verify=self._tls)
            self._opened.push_async_callback(self._inner.aclose)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._opened.aclose()
