"""The session's MCP servers, for any client: how they are, start one again, approve one."""

from __future__ import annotations

from aiohttp import web
from pydantic import BaseModel

from session_worker.http.body import parse_body
from session_worker.http.errors import HttpError
from session_worker.http.keys import CORE
from session_worker.http.session import require_session
from session_worker.mcp_servers.servers import Servers


class ServerApproval(BaseModel):
    fingerprint: str
    """Of what the person has seen, from the server's `approval`."""


def add_routes(router: web.UrlDispatcher) -> None:
    router.add_get("/sessions/{session_id}/mcp", _list)
    router.add_post("/sessions/{session_id}/mcp/{server}/restart", _restart)
    router.add_post("/sessions/{session_id}/mcp/{server}/approve", _approve)


async def _list(request: web.Request) -> web.Response:
    require_session(request)
    servers = _servers(request)
    return web.json_response({"servers": servers.status() if servers else []})


async def _restart(request: web.Request) -> web.Response:
    servers, name = _named(request)
    servers.restart(name)
    return web.json_response({})


async def _approve(request: web.Request) -> web.Response:
    servers, name = _named(request)
    approval = await parse_body(request, ServerApproval)
    if not servers.approve(name, approval.fingerprint):
        raise HttpError(409, "conflict", "this is not how the server is configured; look again")
    return web.json_response({})


def _named(request: web.Request) -> tuple[Servers, str]:
    require_session(request)
    servers, name = _servers(request), request.match_info["server"]
    if servers is None or name not in servers:
        raise HttpError(404, "not_found", f"the session has no MCP server {name[:40]!r}")
    return servers, name


def _servers(request: web.Request) -> Servers | None:
    return request.app[CORE].mcp_servers
