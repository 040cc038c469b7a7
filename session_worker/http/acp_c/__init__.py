"""`/acp`: the Agent Client Protocol, version 1, over streamable HTTP and WebSocket (acp.md §3).

A pure translator of the event log and the session core, as `acp_r` is: `handlers` says what
requests do, `feed` what a client is sent, `translate` how events look.
"""

from __future__ import annotations

from aiohttp import web

from session_worker.http.acp_c import streamable_http, websocket
from session_worker.http.acp_c.registry import Registry


def add_routes(router: web.UrlDispatcher) -> None:
    registry = Registry()

    async def post(request: web.Request) -> web.StreamResponse:
        return await streamable_http.post(request, registry)

    async def get(request: web.Request) -> web.StreamResponse:
        if websocket.is_wanted(request):
            return await websocket.serve(request, registry)
        return await streamable_http.get(request, registry)

    async def delete(request: web.Request) -> web.StreamResponse:
        return await streamable_http.delete(request, registry)

    router.add_post("/acp", post)
    router.add_get("/acp", get, allow_head=False)
    router.add_delete("/acp", delete)
