"""The numbered facts about a session (design §6).

An envelope is `{"seq", "at", "run_id", "type", "data"}`; `seq` is minted once, by the worker.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypedDict

UPDATE = "update"
RUN_STARTED = "run_started"
RUN_FINISHED = "run_finished"
STATE = "state"
PERMISSION_REQUESTED = "permission_requested"
PERMISSION_RESOLVED = "permission_resolved"
RETRY = "retry"
API_CALL = "api_call"
NOTICE = "notice"
TOOL_OUTPUT = "tool_output"
RESTARTED = "restarted"
GAP = "gap"
"""Synthesised by readers whose cursor fell out of the ring; never stored."""


class Envelope(TypedDict):
    seq: int
    at: str
    run_id: str | None
    type: str
    data: dict[str, Any]


def now_iso() -> str:
    """The wall clock as ISO 8601 UTC with milliseconds; never used to measure a wait."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
