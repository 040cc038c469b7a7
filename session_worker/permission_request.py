"""One question to a person: may this call run? And what may be answered."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Any

from sidecar.protocol import events
from sidecar.protocol.events import Envelope, now_iso

Json = dict[str, Any]

ALLOW_ONCE = "allow_once"
ALLOW_SESSION = "allow_session"
ALLOW_PROJECT = "allow_project"
REJECT_ONCE = "reject_once"
REJECT_ALWAYS = "reject_always"
KINDS = {
    ALLOW_ONCE: "allow_once",
    ALLOW_SESSION: "allow_always",
    ALLOW_PROJECT: "allow_always",
    REJECT_ONCE: "reject_once",
    REJECT_ALWAYS: "reject_always",
}
"""The options we offer, and what ACP-C calls them (acp.md §2.5)."""
ALLOWING = frozenset({ALLOW_ONCE, ALLOW_SESSION, ALLOW_PROJECT})

SELECTED = "selected"
CANCELLED = "cancelled"
UNATTENDED = "unattended"
EXPIRED = "expired"


@dataclass(frozen=True)
class Answer:
    """`option_id` is None when nobody chose: the `outcome` says why."""

    outcome: str
    option_id: str | None = None
    reason: str = ""

    @property
    def allows(self) -> bool:
        return self.option_id in ALLOWING


@dataclass
class PermissionRequest:
    """`tool_call`, `options` and `meta` as ACP-C shows them; `seq` is the event that asked."""

    run_id: str
    tool_call: Json
    options: list[Json]
    meta: Json
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    at: str = field(default_factory=now_iso)
    seq: int = 0
    answer: asyncio.Future[Answer] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def option(self, named: str) -> str | None:
        """The id of the option of that id or kind."""
        for option in self.options:
            if named in (option["optionId"], option["kind"]):
                return option["optionId"]
        return None

    def envelope(self) -> Envelope:
        """The event that asked."""
        kind = events.PERMISSION_REQUESTED
        data = self.to_wire()
        return {"seq": self.seq, "at": self.at, "run_id": self.run_id, "type": kind, "data": data}

    def to_wire(self) -> Json:
        return {
            "request_id": self.request_id,
            "run_id": self.run_id,
            "at": self.at,
            "toolCall": self.tool_call,
            "options": self.options,
            "_meta": {"sidecar": self.meta},
        }
