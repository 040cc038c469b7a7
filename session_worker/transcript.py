"""The durable record of a session: JSON Lines from which it can be rebuilt (design §8).

The worker appends through one `Transcript`; anybody may `read` the file at any time.
Never decides what is worth a record, and never runs anything again.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from sidecar.protocol.bounds import KIB
from sidecar.protocol.events import now_iso

VERSION = 1
Kind = Literal[
    "session", "message", "tool_intent", "api_call", "run_started", "run_finished", "repair", "note"
]
Record = dict[str, Any]

_SCAN_BYTES = 64 * KIB
"""Step of the search for the last line from the end of the file: most records fit in one."""


class TranscriptLocked(Exception):
    """Another process writes this transcript."""


class TranscriptFull(Exception):
    """The disk did not take the record; the file is as it was before."""


class Transcript:
    """The one writer of a file. Its methods may block on the disk, and any thread may call them.

    `n` is the number of the last record, `torn_bytes` what `open` had to cut.
    """

    def __init__(self, fd: int, size: int, n: int, torn_bytes: int) -> None:
        self._fd = fd
        self._size = size
        self._lock = threading.Lock()
        self.n = n
        self.torn_bytes = torn_bytes
        self.newest_event: Callable[[], int] | None = None
        """Its number goes into the record of each message, which covers the events until there."""

    @classmethod
    def open(cls, path: Path) -> Transcript:
        """Create or reopen `path`, for this process alone, and cut a torn tail.

        What is cut is first added to `transcript.torn` beside it.
        Raises `TranscriptLocked`, and `OSError` as it comes (a symbolic link is one).
        """
        fd = _open_append(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = os.fstat(fd).st_size
            if not size:
                _sync_directory(path.parent)
            end, n = _end_of_records(fd, size)
            if end < size:
                _keep_aside(path.with_suffix(".torn"), os.pread(fd, size - end, end))
                os.ftruncate(fd, end)
        except BlockingIOError as error:
            os.close(fd)
            raise TranscriptLocked(str(path)) from error
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, end, n, size - end)

    def append(self, kind: Kind, *, sync: bool = False, **fields: Any) -> int:
        """Write one record and return its `n`; with `sync` it is on the disk when this returns.

        All or nothing: raises `TranscriptFull` after taking back what was written.
        """
        with self._lock:
            if kind == "message" and self.newest_event is not None:
                fields["seq"] = self.newest_event()
            record = dict(v=VERSION, n=self.n + 1, at=now_iso(), kind=kind, **fields)
            line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
            try:
                if os.write(self._fd, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if sync:
                    _sync_data(self._fd)
            except OSError as error:
                os.ftruncate(self._fd, self._size)
                raise TranscriptFull(f"{kind} record not written: {error.strerror}") from error
            self._size += len(line)
            self.n += 1
            return self.n

    def close(self) -> None:
        os.close(self._fd)


def read(path: Path, on_corrupt: Callable[[int], object] = lambda offset: None) -> Iterator[Record]:
    """The records of a file that may be being written, oldest first.

    A last line without its newline is not a record yet. A line that is no record is skipped,
    and `on_corrupt` gets its offset.
    """
    offset = 0
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            if (record := _parse(line)) is not None:
                yield record
            else:
                on_corrupt(offset)
            offset += len(line)


def _parse(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
        return record if isinstance(record["n"], int) and isinstance(record["kind"], str) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _end_of_records(fd: int, size: int) -> tuple[int, int]:
    """Where the last whole record ends, and its `n`; zeros when there is none."""
    end = _line_start(fd, size)
    while end:
        start = _line_start(fd, end - 1)
        if (record := _parse(os.pread(fd, end - start, start))) is not None:
            return end, record["n"]
        end = start
    return 0, 0


def _line_start(fd: int, end: int) -> int:
    """The offset just after the last newline before `end`."""
    while end:
        start = max(0, end - _SCAN_BYTES)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _keep_aside(path: Path, tail: bytes) -> None:
    """On the disk before the caller cuts: a kill in between may double a tail, never lose it."""
    with os.fdopen(_open_append(path), "ab") as file:
        file.write(tail)
        file.flush()
        _sync_data(file.fileno())


def _open_append(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _sync_data(fd: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync there stops at the drive's cache
    else:
        os.fdatasync(fd)


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
