"""The ring file: recent events of one session, readable by anyone while and after it runs.

One worker writes it (`session_worker.ring`); daemon, endpoint and command line read it here.
A reader takes no lock, holds nobody up and never delivers a damaged record.

    header, 4096 bytes; the words that move are a cache line apart
       0 magic | 8 u32 header bytes | 12 u32 flags, 0 | 16 u64 data bytes, 2^n | 24 u64 created ns
      64 u64 TAIL, offset of the oldest record    128 u64 HEAD, offset behind the newest
     192 u64 NEXT_SEQ    256 u64 EPOCH | 264 writer pid | 272 its start ticks | 280 closed
    data: records, aligned to 8, never wrapping; a PAD fills what is left at the end
       u32 total | u32 crc32(seq … payload) | u64 seq | u32 length | u16 kind | u16 0 | payload

Offsets count bytes ever written; modulo the data size they are places. The writer stores TAIL,
then the record with its CRC last, then NEXT_SEQ, then HEAD. So what lies between TAIL and HEAD is
whole, and a copy is good if TAIL has not passed its start by the time it is finished. The CRC
stands in for the memory barriers Python lacks. Words are read through aligned `cast("Q")`: other
ways were seen to tear (supervision.md §c).
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import struct
import sys
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from sidecar.protocol.bounds import RING_MAX_BYTES, RING_MIN_BYTES, RING_READ_RETRIES

MAGIC = b"SCRING01"
HEADER_BYTES = 4096
HEADER = struct.Struct("<8sIIQQ")
RECORD = struct.Struct("<IIQIHH")
CRC_FROM = 8
"""Where in a record the bytes begin that its CRC covers."""
TAIL, HEAD, NEXT_SEQ, EPOCH, PID, START_TICKS, CLOSED = 8, 16, 24, 32, 33, 34, 35
"""Indexes into the header seen as u64 words."""
EVENT, PAD = 1, 0xFFFF
"""Kinds of record."""


class RingError(Exception):
    """Everything that is wrong with a ring or its use, beyond what the system calls raise."""


class RingCorrupt(RingError):
    """The file is not a ring, or no longer one."""


class RingFull(RingError):
    """The disk has no room for a new ring."""


class RecordTooLarge(RingError):
    """The payload is longer than the writer's `max_payload`."""


class CursorInFuture(RingError):
    """The cursor names a number this ring has not minted: it belongs to another session."""


class Record(NamedTuple):
    seq: int
    kind: int
    payload: bytes


class Gap(NamedTuple):
    """Numbers nobody can read any more, both ends included."""

    from_seq: int
    to_seq: int


class RingStats(NamedTuple):
    """`last_seq` is a good cursor for "from now on"; `*_bytes` include headers and padding."""

    capacity_bytes: int
    used_bytes: int
    first_seq: int
    last_seq: int
    dropped_events: int
    dropped_bytes: int


def is_data_size(data_bytes: int) -> bool:
    return data_bytes.bit_count() == 1 and RING_MIN_BYTES <= data_bytes <= RING_MAX_BYTES


def record_bytes(length: int) -> int:
    """What a payload of `length` bytes takes up in the ring."""
    return (RECORD.size + length + 7) & ~7


def map_ring(path: Path, access: int) -> mmap.mmap:
    """Map a whole ring file; `access` is `mmap.ACCESS_READ` or `ACCESS_WRITE`.

    Raises RingCorrupt for whatever else lies at `path`, links included, and OSError.
    """
    if sys.byteorder != "little":
        raise RingError("ring files need a little-endian host")
    mode = os.O_RDWR if access == mmap.ACCESS_WRITE else os.O_RDONLY
    try:
        # O_NONBLOCK: a FIFO put in our place would hold up the daemon in open()
        fd = os.open(path, mode | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RingCorrupt(f"{path} is a symbolic link") from error
        raise
    try:
        found = os.fstat(fd)
        raw = os.pread(fd, HEADER.size, 0) if stat.S_ISREG(found.st_mode) else b""
        if len(raw) < HEADER.size:
            raise RingCorrupt(f"{path} is not a ring file")
        magic, header_bytes, flags, data_bytes, _ = HEADER.unpack(raw)
        if (magic, header_bytes, flags) != (MAGIC, HEADER_BYTES, 0):
            raise RingCorrupt(f"{path} is not a ring file of this version")
        if not is_data_size(data_bytes) or found.st_size != HEADER_BYTES + data_bytes:
            raise RingCorrupt(f"{path} does not have the size it claims")
        return mmap.mmap(fd, HEADER_BYTES + data_bytes, access=access)
    finally:
        os.close(fd)


class RingReader:
    """A cursor into a ring. A new one stands before number 1, as after `seek(0)`.

    Every number up to the newest comes out of `read` exactly once: in a Record, or in a Gap if
    it was overwritten before it was read, or skipped by a writer that died publishing it.
    """

    def __init__(self, mapping: mmap.mmap) -> None:
        self._map = mapping
        self._words = memoryview(mapping).cast("Q")
        self._halves = memoryview(mapping).cast("I")
        self._size = len(mapping) - HEADER_BYTES
        self._pos = 0
        self._next = 1

    @classmethod
    def open(cls, path: Path) -> RingReader:
        """Raises RingCorrupt and OSError."""
        return cls(map_ring(path, mmap.ACCESS_READ))

    def close(self) -> None:
        self._words.release()
        self._halves.release()
        self._map.close()

    def __enter__(self) -> RingReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def seek(self, after: int) -> None:
        """Move to the first record numbered above `after`, which is 0 or was once delivered.

        Hops over headers from the oldest record on: 6 ms in a full default ring of 200 B events.
        Raises CursorInFuture and RingCorrupt.
        """
        pos, head = self._span()
        words, halves, size = self._words, self._halves, self._size
        if after >= words[NEXT_SEQ]:
            raise CursorInFuture(f"event {after} has not happened yet")
        misses = 0
        while pos < head and misses < RING_READ_RETRIES:
            room = size - (pos & (size - 1))
            if room < RECORD.size:
                pos += room
                continue
            at = HEADER_BYTES + size - room
            total, seq = halves[at >> 2], words[(at >> 3) + 1]
            if (tail := words[TAIL]) > pos:
                pos = tail
            elif total < RECORD.size:
                misses += 1  # read() will find the same and say so
            elif seq > after:
                break
            else:
                pos += total
        self._pos, self._next = pos, after + 1

    def read(self, limit: int, max_bytes: int | None = None) -> list[Record | Gap]:
        """Up to `limit` records, each after the Gap before it, if any; [] when nothing is new.

        Stops before the payloads exceed `max_bytes`, but not before the first. Never waits.
        Raises RingCorrupt when what comes next cannot be read; what came before it was returned.
        """
        self._span()
        words = self._words
        budget = sys.maxsize if max_bytes is None else max_bytes
        out: list[Record | Gap] = []
        misses = 0
        while limit > 0 and self._pos != (head := words[HEAD]):
            pos = self._pos
            entry = self._copy(pos, head, self._next)
            tail = words[TAIL]
            if tail > pos or entry is None:
                self._pos = max(pos, tail)
                misses += 1
                if misses < RING_READ_RETRIES:
                    continue
                if out:
                    break
                raise RingCorrupt(f"no record at offset {pos}")
            total, seq, kind, payload = entry
            if kind != PAD:
                budget -= len(payload)
                if budget < 0 and out:
                    break
                if seq > self._next:
                    out.append(Gap(self._next, seq - 1))
                out.append(Record(seq, kind, payload))
                self._next = seq + 1
                limit -= 1
            self._pos = pos + total
        return out

    def stats(self) -> RingStats:
        """Figures of this moment; the cursor stays. Raises RingCorrupt."""
        words = self._words
        for _ in range(RING_READ_RETRIES):
            tail, head = self._span()
            # only a ring never written to is empty, as a record takes a quarter of it at most
            first = 1 if tail == head else self._seq_at(tail)
            if first and tail == words[TAIL]:
                break
        else:
            raise RingCorrupt("no oldest record")
        # a number whose record is still behind HEAD is minted, but nobody can have read it yet
        minted = words[NEXT_SEQ] - 1
        pending = minted > 0 and self._seq_at(words[HEAD]) == minted
        return RingStats(self._size, head - tail, first, minted - pending, first - 1, tail)

    def _span(self) -> tuple[int, int]:
        """TAIL and HEAD as they stood together. Raises RingCorrupt."""
        # touching a page behind the end of a truncated file is SIGBUS, which nobody can catch
        if self._map.size() == len(self._map):
            for _ in range(RING_READ_RETRIES):
                head, tail = self._words[HEAD], self._words[TAIL]
                if 0 <= head - tail <= self._size:
                    return tail, head
        raise RingCorrupt("the file was truncated or its header overwritten")

    def _seq_at(self, pos: int) -> int:
        """Number of the first record at or behind `pos`, 0 if there is none."""
        entry = self._copy(pos, pos + self._size, 1)
        if entry and entry[2] == PAD:
            pos += entry[0]
            entry = self._copy(pos, pos + self._size, 1)
        return entry[1] if entry else 0

    def _copy(self, pos: int, end: int, least: int) -> tuple[int, int, int, bytes] | None:
        """(total, seq, kind, payload) of what is at `pos`; None if that is no PAD and no record
        numbered `least` or above that ends by `end`. No length is believed unbounded.
        """
        at = pos & (self._size - 1)
        room = self._size - at
        if room < RECORD.size:
            return room, 0, PAD, b""
        at += HEADER_BYTES
        total, crc, seq, length, kind, _ = RECORD.unpack_from(self._map, at)
        if kind == PAD:
            fits = total == room and length == 0
        else:
            fits = total == record_bytes(length) and total <= self._size // 4 and seq >= least
        if not fits or total > end - pos:
            return None
        body = at + RECORD.size
        payload = self._map[body : body + length]
        if crc32(payload, crc32(self._map[at + CRC_FROM : body])) != crc:
            return None
        return total, seq, kind, payload
