"""The endpoint's application: who may ask, in which form, and what errors look like."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable

from aiohttp import web

from session_worker.http import permissions, runs, session
from session_worker.http.errors import HttpError, error_response
from session_worker.http.keys import CORE
from sidecar.protocol import VERSION, bounds
from sidecar.protocol.peer import is_of_a_session, is_ours

log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def build_app() -> web.Application:
    app = web.Application(
        middlewares=[_translate_errors, _guard], client_max_size=bounds.HTTP_BODY_BYTES
    )
    app.router.add_get("/healthz", _healthz)
    runs.add_routes(app.router)
    session.add_routes(app.router)
    permissions.add_routes(app.router)
    return app


async def _healthz(request: web.Request) -> web.Response:
    core = request.app[CORE]
    return web.json_response(
        {
            "session_id": core.spec.session_id,
            "pid": os.getpid(),
            "incarnation": core.spec.incarnation,
            "version": VERSION,
            "state": core.state,
            "run": core.run_info(),
        }
    )


@web.middleware
async def _translate_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The one place where exceptions become answers; texts of ours never leave otherwise."""
    try:
        return await handler(request)
    except HttpError as error:
        return error_response(error.status, error.code, error.message)
    except web.HTTPException as error:
        code = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}.get(
            error.status, "invalid_input"
        )
        return error_response(error.status, code, error.text or error.reason)
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        return error_response(500, "server_error", "internal error; the details are in worker.log")


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Only our own user, no browser page, and state changes only in JSON (design §5)."""
    transport = request.transport
    if transport is None or not is_ours(transport.get_extra_info("socket")):
        raise HttpError(403, "forbidden", "this endpoint belongs to another user")
    peer = transport.get_extra_info("socket")
    if request.method in _WRITES and is_of_a_session(peer, beside=os.getppid()):
        raise HttpError(403, "forbidden", "what a session's agent starts may not steer a session")
    if "Origin" in request.headers:
        raise HttpError(403, "forbidden", "requests from web pages are refused")
    if request.method in _WRITES and not _is_json(request):
        raise HttpError(415, "invalid_input", "send the body with 'content-type: application/json'")
    return await handler(request)


def _is_json(request: web.Request) -> bool:
    declared = request.headers.get("Content-Type")
    if declared is None:
        return request.path.startswith("/runs")  # the acp-sdk client sends no type at all
    return request.content_type == "application/json"
