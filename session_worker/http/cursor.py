"""The number of the last event that a client has seen, as it says so."""

from __future__ import annotations

from aiohttp import web
from aiohttp.hdrs import LAST_EVENT_ID

from session_worker.http.errors import HttpError

DIGITS = 19
"""Of the largest event number; `int` itself fails for one of thousands."""


def parse_cursor(raw: str) -> int:
    """Raises `HttpError` (400)."""
    if not raw.isascii() or not raw.isdigit() or len(raw) > DIGITS:
        raise HttpError(400, "invalid_input", f"the cursor is an event number, not {raw[:40]!r}")
    return int(raw)


def last_event_id(request: web.Request, newest: int) -> int | None:
    """What the header says; None if it is not there. Raises `HttpError` (400), also for the number
    of an event that is still to come."""
    raw = request.headers.get(LAST_EVENT_ID)
    if not raw:
        return None
    seq = parse_cursor(raw)
    if seq > newest:
        raise HttpError(400, "invalid_input", f"there is no event {seq} yet; the last is {newest}")
    return seq
