"""The vocabulary of the demo model: what a script is asked, and what it may answer.

Used by scripts (intents, scenarios, tests) and by the server that carries their answers out.
Holds data only; how it travels is in `wire` and `stream`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Json = dict[str, Any]

FaultKind = Literal["overloaded", "cut", "reset", "stall", "eof", "half_event"]
"""In-band error event; FIN in the body; RST (a FIN on Unix sockets); silence until the client
leaves; clean end without `message_stop`; clean end inside an event."""

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


@dataclass(frozen=True)
class Streamed:
    """A content block that travels exactly so; without deltas it is whole in its start."""

    start: Json
    deltas: Sequence[Json] = ()


@dataclass(frozen=True)
class Fault:
    """What goes wrong after the first `after` events (half of them if not given).

    A stall after none comes before the first byte, that of the headers included.
    """

    kind: FaultKind
    after: int | None = None


@dataclass(frozen=True)
class Reply:
    """One assistant message and the way it is sent.

    `content`: API blocks, split into deltas as the API does, or `Streamed` ones; a `tool_use`
    without `id` and a `thinking` without `signature` get theirs when they are sent.
    `stop_reason`: empty means `tool_use` if the content calls a tool, else `end_turn`.
    `start` is merged into the message of `message_start` (pre-filled content, container),
    each of `deltas` into a `message_delta`, the last of which carries the stop reason.
    `events` replaces all of the above. `chunk_bytes` cuts the whole body into such pieces
    instead of a chunk an event; then `tps` (tokens a second) does not apply.
    """

    content: Sequence[Json | Streamed] = ()
    stop_reason: str = ""
    usage: Json = field(default_factory=dict[str, Any])
    start: Json = field(default_factory=dict[str, Any])
    deltas: Sequence[Json] = ({},)
    events: Sequence[Json] = ()
    tps: float | None = None
    chunk_bytes: int | None = None
    fault: Fault | None = None


@dataclass(frozen=True)
class ApiError:
    """An answer that is no stream. A `body` of text is sent as HTML, as proxies do."""

    status: int
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Json | str | None = None

    def payload(self, request_id: str) -> Json:
        """The body the API would send, unless one was given."""
        if isinstance(self.body, dict):
            return self.body
        kind = ERROR_TYPES.get(self.status, "api_error")
        error = {"type": kind, "message": self.message or kind}
        return {"type": "error", "error": error, "request_id": request_id}


@dataclass(frozen=True)
class Request:
    """A body that broke no rule; `attempt` counts, from 1, the calls with these same messages."""

    body: Json
    attempt: int


Answer = Reply | ApiError
Script = Callable[[Request], Answer | None]
"""Decides the answer to one call; `None` means that the call was not expected."""


def queue_script(answers: Iterable[Answer]) -> Script:
    """A script that gives these answers in order, whatever is asked."""
    waiting = deque(answers)
    return lambda _: waiting.popleft() if waiting else None


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def tool_use(name: str, arguments: Json) -> Json:
    return {"type": "tool_use", "name": name, "input": arguments}


def thinking(words: str) -> Json:
    return {"type": "thinking", "thinking": words}
