"""An HTTP server's streams, with the session's headers. Imported only when there is one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from sidecar.protocol import mcp_bounds


@contextlib.asynccontextmanager
async def http_transport(
    url: str,
    headers: Mapping[str, str],
    auth: httpx2.Auth | None,
    on_status: Callable[[int], None],
) -> AsyncGenerator[Any]:
    """`on_status` is told the status of the answer of `url` itself to every message. Redirects off
    its origin are not followed, so that no header goes there (the library sees to that)."""

    async def tell(response: httpx2.Response) -> None:
        request = response.request
        if (request.method, request.url) == ("POST", httpx2.URL(url)):
            on_status(response.status_code)

    timeout = httpx2.Timeout(mcp_bounds.MCP_CONNECT_S, read=mcp_bounds.MCP_CALL_MAX_S)
    async with (
        httpx2.AsyncClient(
            headers=dict(headers), timeout=timeout, auth=auth, event_hooks={"response": [tell]}
        ) as http,
        streamable_http_client(
            url, http_client=http, max_sse_event_size=mcp_bounds.MCP_LINE_BYTES
        ) as streams,
    ):
        yield streams
