"""The endpoint's application: who may ask, in which form, and what errors look like."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Awaitable, Callable

from aiohttp import web

from session_worker.http import acp_c, mcp, permissions, runs, session
from session_worker.http.access import WRITES, Asked, Peer, refusal, steers
from session_worker.http.errors import HttpError, error_response
from session_worker.http.intake import INTAKE, Intake
from session_worker.http.keys import CORE
from sidecar.protocol import VERSION, bounds
from sidecar.protocol.peer import is_of_a_session, is_ours, is_process

log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_app() -> web.Application:
    app = web.Application(
        middlewares=[_translate_errors, _guard], client_max_size=bounds.HTTP_BODY_BYTES
    )
    app[INTAKE] = Intake()
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/openapi.json", _openapi)
    runs.add_routes(app.router)
    session.add_routes(app.router)
    permissions.add_routes(app.router)
    mcp.add_routes(app.router)
    acp_c.add_routes(app.router)
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


async def _openapi(_: web.Request) -> web.Response:
    from session_worker.http.openapi import document  # here, for it is heavy, and hardly asked for

    return web.json_response(document())


@web.middleware
async def _translate_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The one place where exceptions become answers; texts of ours never leave otherwise."""
    try:
        return await handler(request)
    except HttpError as error:
        answer = error_response(error.status, error.code, error.message)
        if error.status == 401:
            answer.headers["WWW-Authenticate"] = "Bearer"
        return answer
    except web.HTTPException as error:
        code = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}.get(
            error.status, "invalid_input"
        )
        answer = error_response(error.status, code, error.text or error.reason)
        if "Allow" in error.headers:
            answer.headers["Allow"] = error.headers["Allow"]
        return answer
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        return error_response(500, "server_error", "internal error; the details are in worker.log")


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Nobody gets further who may not ask (`access.py`), and no body that is too much."""
    error = refusal(_asked(request), request.app[CORE].spec.tcp)
    if error is not None:
        raise error
    if request.method in WRITES:
        await request.app[INTAKE].take(request)
    return await handler(request)


def _asked(request: web.Request) -> Asked:
    peer = None
    connection = request.transport and request.transport.get_extra_info("socket")
    if connection is None:
        peer = Peer(ours=False, of_a_session=False)  # it has left
    elif connection.family == socket.AF_UNIX:
        above = request.app[CORE].spec.parent
        asks_where = steers(request.method, request.headers)
        peer = Peer(
            ours=is_ours(connection),
            of_a_session=asks_where
            and is_of_a_session(connection, beside=os.getppid())
            and not (above and above.worker and is_process(connection, *above.worker)),
        )
    declared = "Content-Type" in request.headers
    content_type = request.content_type if declared else None
    return Asked(request.method, request.raw_path, request.headers, content_type, peer)
