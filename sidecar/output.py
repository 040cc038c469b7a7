"""Reading a session's ring for clients of the control plane, also after the session's death.

Only envelopes are moved: a new event type concerns worker and client, never the daemon.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from typing import Any

from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.events import GAP, now_iso
from sidecar.protocol.framing import encode
from sidecar.protocol.methods import SESSION_EVENT
from sidecar.protocol.ring import CursorInFuture, Gap, Record, RingError, RingReader
from sidecar.server import Connection
from sidecar.session import Session

log = logging.getLogger(__name__)


async def read(session: Session, after: int, *, limit: int, wait_s: float) -> dict[str, Any]:
    """`session.output`: what follows `after`; waits up to `wait_s` for something to come."""
    with _open(session, after) as reader:
        until = time.monotonic() + wait_s
        while not (items := reader.read(limit, bounds.OUTPUT_REPLY_BYTES)):
            left = until - time.monotonic()
            if left <= 0 or not session.live:
                break
            await asyncio.sleep(min(bounds.RING_POLL_S, left))
    gap, records = _leading_gap(items)
    last = records[-1].seq if records else gap.to_seq if gap else after
    return {
        "events": [json.loads(record.payload) for record in records],
        "last_seq": last,
        "gap": gap and {"from": gap.from_seq, "to": gap.to_seq},
    }


def _leading_gap(items: list[Record | Gap]) -> tuple[Gap | None, list[Record]]:
    """What one answer can say: a gap, then records. It ends before a second gap, which the next
    answer begins with; one range over both would call delivered events lost."""
    gap = items[0] if items and isinstance(items[0], Gap) else None
    records: list[Record] = []
    for item in items[1 if gap else 0 :]:
        if isinstance(item, Gap):
            break
        records.append(item)
    return gap, records


def subscribe(connection: Connection, session: Session, after: int) -> dict[str, Any]:
    """`session.subscribe`: answers first, then notifies until the connection or the task ends."""
    reader = _open(session, after)
    subscription = secrets.token_hex(16)
    connection.subscriptions[subscription] = connection.run(
        _notify(connection, reader, subscription)
    )
    return {"subscription": subscription}


async def _notify(connection: Connection, reader: RingReader, subscription: str) -> None:
    head = (
        encode(
            {"jsonrpc": "2.0", "method": SESSION_EVENT, "params": {"subscription": subscription}}
        ).removesuffix(b"}}\n")
        + b',"event":'
    )
    with reader:
        while True:
            try:
                lines = [head + _envelope(i) + b"}}\n" for i in reader.read(bounds.RING_READ_BATCH)]
            except RingError:
                log.exception("subscription %s ends", subscription)
                return
            if lines:
                await connection.send(b"".join(lines))
            else:
                await asyncio.sleep(bounds.RING_POLL_S)


def _envelope(item: Record | Gap) -> bytes:
    if isinstance(item, Record):
        return item.payload
    data = {"from": item.from_seq, "to": item.to_seq}
    gap = {"seq": item.to_seq, "at": now_iso(), "run_id": None, "type": GAP, "data": data}
    return encode(gap).rstrip()


def _open(session: Session, after: int) -> RingReader:
    """A reader that stands behind `after`. Raises `SidecarError` (`invalid_params`)."""
    try:
        reader = RingReader.open(session.places.ring)
    except (OSError, RingError) as error:
        raise SidecarError(
            "session_not_found",
            f"session {session.record.name} has no readable events: {type(error).__name__}",
            "a session that never started has none",
        ) from error
    try:
        reader.seek(after)
    except CursorInFuture as error:
        reader.close()
        raise SidecarError(
            "invalid_params", str(error), "cursors count from 0 and belong to one session"
        ) from error
    return reader
