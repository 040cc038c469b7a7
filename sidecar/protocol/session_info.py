"""SessionInfo, the one description of a session on the control plane (design §4)."""

from __future__ import annotations

from typing import Any, TypedDict


class Endpoint(TypedDict):
    socket: str
    url: str | None
    token: str | None


class ExitInfo(TypedDict):
    code: int | None
    signal: int | None
    reason: str
    at: str


class SessionInfo(TypedDict):
    """Times are ISO 8601 UTC. `pid` and `shim_pid` are null once the process is gone. `parent` is
    the id of the session that a subagent belongs to."""

    session_id: str
    name: str
    parent: str | None
    state: str
    wanted: str
    cwd: str
    model: str
    mode: str
    pid: int | None
    shim_pid: int | None
    incarnation: int
    restarts: int
    created_at: str
    started_at: str | None
    last_active_at: str
    endpoint: Endpoint
    run: dict[str, Any] | None
    limits: dict[str, Any]
    last_result: dict[str, Any] | None
    exit: ExitInfo | None
