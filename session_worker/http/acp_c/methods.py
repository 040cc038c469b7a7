"""What clients may ask, in which shape, and what the end of a run answers. Pure.

Unknown members are ignored: protocol versions and vendors add some.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from session_worker.http.acp_c import jsonrpc
from session_worker.http.acp_c.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, Id, Json, RpcError
from session_worker.turn import StopReason

M = TypeVar("M", bound=BaseModel)


class Initialize(BaseModel):
    protocolVersion: int
    clientCapabilities: Json | None = None


class Authenticate(BaseModel):
    methodId: str


class NewSession(BaseModel):
    cwd: str = Field(pattern="^/")
    mcpServers: list[Any] = []


class OpenSession(NewSession):
    """`session/load` and `session/resume`."""

    sessionId: str


class OfSession(BaseModel):
    sessionId: str


class ListSessions(BaseModel):
    cwd: str | None = None


class Prompt(OfSession):
    prompt: list[Json]


class SetMode(OfSession):
    modeId: str


class SetConfigOption(OfSession):
    configId: str
    value: str


class CancelRequest(BaseModel):
    requestId: str | int | None


def checked(model: type[M], params: Json) -> M:
    """Raises `RpcError` (-32602) that names the first member which is wrong, and why."""
    try:
        return model.model_validate(params)
    except ValidationError as wrong:
        first = wrong.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "params"
        raise RpcError(INVALID_PARAMS, f"{where}: {first['msg']}") from None


_STOP_REASONS = {
    StopReason.FINAL_ANSWER: "end_turn",
    StopReason.MAX_TOKENS: "max_tokens",
    StopReason.CONTEXT_LIMIT: "max_tokens",
    StopReason.MAX_TURNS: "max_turn_requests",
    StopReason.LOOP_DETECTED: "max_turn_requests",
    StopReason.CANCELLED: "cancelled",
    StopReason.REFUSAL: "refusal",
}
"""acp.md §2.5; what is not here, and whatever has an error, is answered as one."""


def prompt_answer(request_id: Id, run_id: str, outcome: Json) -> Json:
    """The answer to `session/prompt`; `outcome` is the AgentLoopResult of its run."""
    reason, failure = outcome.get("stop_reason", "error"), outcome.get("error")
    meta = {"sidecar/run_id": run_id, "sidecar/stop_reason": reason}
    if reason in _STOP_REASONS and not failure:
        value = {"stopReason": _STOP_REASONS[reason], "_meta": meta}
        return jsonrpc.result(request_id, value)
    failure = failure or {"type": "unknown", "message": "the run failed"}
    data = {**meta, "type": failure["type"]}
    return jsonrpc.error(request_id, RpcError(INTERNAL_ERROR, failure["message"], data))
