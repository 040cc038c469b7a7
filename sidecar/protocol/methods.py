"""The control plane's methods: one row each, with the JSON Schema of its params (design §4).

Server, client and documentation all read this table; a test holds them to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sidecar.protocol import bounds

Schema = dict[str, Any]

PERMISSION_MODES = ("ask", "accept-edits", "plan", "auto", "bypass")
LIVE_STATES = (
    "starting",
    "idle",
    "running",
    "waiting",
    "sleeping",
    "restarting",
    "stopping",
)
ENDED_STATES = ("exited", "failed", "lost")
STATES = LIVE_STATES + ENDED_STATES
NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_. -]{0,63}$"


@dataclass(frozen=True)
class Method:
    """One method. `params` maps a name to its schema; a `default` there makes it optional."""

    name: str
    summary: str
    params: dict[str, Schema] = field(default_factory=dict[str, Schema])
    required: tuple[str, ...] = ()

    @property
    def schema(self) -> Schema:
        return {
            "type": "object",
            "properties": self.params,
            "required": list(self.required),
            "additionalProperties": False,
        }

    def with_defaults(self, params: dict[str, Any]) -> dict[str, Any]:
        defaults = {k: s["default"] for k, s in self.params.items() if "default" in s}
        return {**defaults, **params}


def _string(**more: Any) -> Schema:
    return {"type": "string", **more}


def _integer(low: int, high: int, **more: Any) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high, **more}


def _number(high: float, **more: Any) -> Schema:
    return {"type": "number", "minimum": 0, "maximum": high, **more}


def _flag() -> Schema:
    return {"type": "boolean", "default": False}


_ID = _string(minLength=1, maxLength=64)
_NAME = _string(pattern=NAME_PATTERN)
_ENV: Schema = {
    "type": "object",
    "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
    "additionalProperties": {"type": "string", "pattern": "^[^\\x00]*$"},
    "default": {},
}
_LIMITS: Schema = {
    "type": "object",
    "properties": {
        "memory_bytes": _integer(1, 1 << 50),
        "processes": _integer(1, 1 << 22),
        "cpu_s": _number(1e9),
        "cost_usd": _number(1e9),
        "tokens": _integer(1, 1 << 50),
    },
    "additionalProperties": False,
    "default": {},
}
_AFTER = _integer(0, (1 << 63) - 1, default=0)

METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method(
            "session.create",
            "start a session; answers SessionInfo once its endpoint does",
            {
                "cwd": _string(minLength=1, maxLength=4096),
                "name": _NAME,
                "model": _string(minLength=1, maxLength=256),
                "system": _string(),
                "max_turns": _integer(1, 10_000, default=bounds.MAX_TURNS_DEFAULT),
                "max_tokens": _integer(1, 1_000_000),
                "mode": _string(enum=list(PERMISSION_MODES)),
                "mcp_servers": {"type": "object", "default": {}},
                "env": _ENV,
                "limits": _LIMITS,
                "ring_bytes": _integer(
                    bounds.RING_MIN_BYTES,
                    bounds.RING_MAX_BYTES,
                    default=bounds.RING_DEFAULT_BYTES,
                ),
                "idle_timeout_s": _number(1e9, default=900),
                "programmatic_tools": _flag(),
                "tcp": _flag(),
                "client_id": _string(minLength=1, maxLength=128),
                "parent": _ID,
                "deny": {"type": "array", "items": _string(minLength=1), "default": []},
            },
            ("cwd",),
        ),
        Method(
            "session.status",
            "SessionInfo with resources, ring and usage",
            {"session_id": _ID},
            ("session_id",),
        ),
        Method(
            "session.list",
            "live sessions, or with `all` ended ones too, newest first",
            {
                "all": _flag(),
                "state": _string(enum=list(STATES)),
                "limit": _integer(1, 1000, default=100),
                "cursor": _string(minLength=1, maxLength=128),
            },
        ),
        Method(
            "session.destroy",
            "end the session and prove its whole process tree gone",
            {
                "session_id": _ID,
                "grace_s": _number(
                    bounds.DESTROY_GRACE_MAX_S, default=bounds.DESTROY_GRACE_DEFAULT_S
                ),
                "purge": _flag(),
            },
            ("session_id",),
        ),
        Method(
            "session.resume",
            "bring an ended session up again from its transcript, same id",
            {"session_id": _ID, "env": _ENV},
            ("session_id",),
        ),
        Method(
            "session.rename",
            "give the session another name",
            {"session_id": _ID, "name": _NAME},
            ("session_id", "name"),
        ),
        Method(
            "session.output",
            "events from the ring file, also of a dead session",
            {
                "session_id": _ID,
                "after": _AFTER,
                "limit": _integer(1, bounds.OUTPUT_LIMIT_MAX, default=1000),
                "wait_s": _number(bounds.OUTPUT_WAIT_MAX_S, default=0),
            },
            ("session_id",),
        ),
        Method(
            "session.subscribe",
            "then notifications `session.event {subscription, event}`",
            {"session_id": _ID, "after": _AFTER},
            ("session_id",),
        ),
        Method(
            "session.unsubscribe",
            "end one subscription of this connection",
            {"subscription": _string(minLength=1, maxLength=64)},
            ("subscription",),
        ),
        Method("sidecar.subscribe", "then notifications `session.changed {session_id, state, …}`"),
        Method("sidecar.status", "the daemon, its zygote, its resources and limits"),
        Method("sidecar.ping", "answers {}"),
        Method(
            "sidecar.shutdown",
            "stop the daemon; sessions live on unless `stop_sessions`",
            {"stop_sessions": _flag(), "drain_s": _number(3600, default=0)},
        ),
    )
}

SESSION_EVENT = "session.event"
SESSION_CHANGED = "session.changed"
