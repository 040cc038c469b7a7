"""The exit codes of `sidecarctl`, and what they are made of. Pure."""

from __future__ import annotations

from typing import Any

from client.errors import EndpointRefusal
from sidecar.protocol.errors import SidecarError

OK = 0
FAILED = 1
USAGE = 2
TIMED_OUT = 3
NO_SESSION = 4
FORBIDDEN = 5
UNREACHABLE = 6
BUSY = 7
RUN_ENDED_BADLY = 8
BROKEN_PIPE = 141
BY_SIGNAL = 128
"""Plus the signal's number, as a shell counts it."""

_BY_CODE = {
    "usage": USAGE,
    "invalid_params": USAGE,
    "ambiguous_id": USAGE,
    "timed_out": TIMED_OUT,
    "session_not_found": NO_SESSION,
    "forbidden": FORBIDDEN,
    "unreachable": UNREACHABLE,
    "shutting_down": UNREACHABLE,
    "name_taken": BUSY,
    "limit_reached": BUSY,
    "overloaded": BUSY,
}
_BY_STATUS = {
    400: USAGE,
    401: FORBIDDEN,
    403: FORBIDDEN,
    404: NO_SESSION,
    409: BUSY,
    422: USAGE,
    504: TIMED_OUT,
}


def of_error(error: SidecarError) -> int:
    if isinstance(error, EndpointRefusal):
        return _BY_STATUS.get(error.status, FAILED)
    return _BY_CODE.get(error.code, FAILED)


def of_result(result: dict[str, Any]) -> int:
    """Of an AgentLoopResult."""
    error: dict[str, Any] = result.get("error") or {}
    if error.get("type") == "permission_required":
        return FORBIDDEN
    return OK if result["stop_reason"] == "final_answer" else RUN_ENDED_BADLY
