"""The session's numbered events: minted here, kept in the ring, waited for by readers.

Emitting never blocks and never fails for want of a reader: the ring drops its oldest.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from session_worker.ring import RingWriter
from sidecar.protocol.events import now_iso
from sidecar.protocol.ring import RingReader

_encode = json.JSONEncoder(separators=(",", ":")).encode
"""`json.dumps` would build an encoder for every event of a stream."""


class EventLog:
    """Single-threaded: everything here runs on the worker's event loop."""

    def __init__(self, path: Path, data_bytes: int) -> None:
        self._path = path
        self._ring = RingWriter.open(path, data_bytes)
        with RingReader.open(path) as reader:
            # not next_seq - 1: a writer killed in mid-append leaves a number without a record
            self.last_seq = reader.stats().last_seq
        self._bell = asyncio.Event()
        self._bell_due = False
        self.ended = False
        """No event will follow: streams end once they have shown the last one."""

    def emit(self, kind: str, data: dict[str, Any], run_id: str | None = None) -> int:
        """Append one event; its number."""
        envelope: dict[str, Any] = {
            "seq": self._ring.next_seq,
            "at": now_iso(),
            "run_id": run_id,
            "type": kind,
            "data": data,
        }
        line = _encode(envelope).encode()
        if len(line) > self._ring.max_payload:
            line = _cut(envelope, self._ring.max_payload)
        self.last_seq = self._ring.append(line)
        if not self._bell_due:
            self._bell_due = True
            asyncio.get_running_loop().call_soon(self._ring_bell)
        return self.last_seq

    def _ring_bell(self) -> None:
        # once per loop tick, however many events the tick brought
        self._bell_due = False
        self._bell.set()
        self._bell = asyncio.Event()

    def reader_after(self, seq: int) -> RingReader:
        """A reader of its own for one stream. Raises `CursorInFuture`."""
        reader = RingReader.open(self._path)
        try:
            reader.seek(seq)
        except BaseException:
            reader.close()
            raise
        return reader

    async def wait_beyond(self, seq: int, timeout_s: float) -> bool:
        """True once an event after `seq` exists or none will; False after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.last_seq <= seq and not self.ended:
                    await self._bell.wait()
        except TimeoutError:
            return False
        return True

    def end(self) -> None:
        """Let every stream come to its end."""
        self.ended = True
        self._bell.set()

    def close(self) -> None:
        self._ring.close()


def _cut(envelope: dict[str, Any], limit: int) -> bytes:
    """`envelope` with its longest strings shortened until it fits; says so, and where all is."""
    keep = limit // 2
    while True:
        cut: dict[str, Any] = {
            **envelope,
            "data": _shorten(envelope["data"], keep),
            "truncated": True,
            "whole": "transcript",
        }
        line = _encode(cut).encode()
        if len(line) <= limit:
            return line
        keep //= 2
        if keep == 0:
            cut["data"] = {}
            return _encode(cut).encode()


def _shorten(value: Any, keep: int) -> Any:
    if isinstance(value, str):
        return value[:keep]
    if isinstance(value, dict):
        return {k: _shorten(v, keep) for k, v in value.items()}  # pyright: ignore
    if isinstance(value, list):
        return [_shorten(v, keep) for v in value]  # pyright: ignore
    return value
