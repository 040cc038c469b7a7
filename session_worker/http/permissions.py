"""The session's pending questions, for any client: list them, answer one."""

from __future__ import annotations

from aiohttp import web
from pydantic import BaseModel, Field

from session_worker.core import SessionCore
from session_worker.http.body import parse_body
from session_worker.http.errors import HttpError
from session_worker.http.keys import CORE
from session_worker.http.session import require_session
from session_worker.permission_request import PermissionRequest
from session_worker.permission_requests import NotPending, UnknownOption
from sidecar.protocol import bounds


class PermissionAnswer(BaseModel):
    option_id: str | None
    """An option's id or kind; null cancels the run."""
    reason: str = Field(default="", max_length=bounds.PERMISSION_REASON_CHARS)


def add_routes(router: web.UrlDispatcher) -> None:
    router.add_get("/sessions/{session_id}/permissions", _list)
    router.add_post("/sessions/{session_id}/permissions/{request_id}", _answer)


async def _list(request: web.Request) -> web.Response:
    require_session(request)
    core = request.app[CORE]
    core.attendance.polled()
    return web.json_response({"pending": [r.to_wire() for r in core.requests.pending()]})


async def _answer(request: web.Request) -> web.Response:
    require_session(request)
    answer = await parse_body(request, PermissionAnswer)
    settle(request.app[CORE], request.match_info["request_id"], answer.option_id, answer.reason)
    return web.json_response({})


def settle(
    core: SessionCore, request_id: str, option: str | None, reason: str
) -> PermissionRequest:
    """The question, answered. Raises `HttpError`."""
    try:
        return core.requests.answer(request_id, option, reason[: bounds.PERMISSION_REASON_CHARS])
    except NotPending:
        raise HttpError(
            403, "invalid_input", "this question is not open: it was answered, or its run has ended"
        ) from None
    except UnknownOption:
        raise HttpError(
            422, "invalid_input", f"the question has no option {(option or '')[:40]!r}"
        ) from None
