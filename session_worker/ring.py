"""The writing end of the ring file; `sidecar.protocol.ring` has the format and the reader."""

from __future__ import annotations

import errno
import mmap
import os
import sys
import time
from pathlib import Path
from zlib import crc32

from sidecar.protocol.bounds import RING_MIN_BYTES
from sidecar.protocol.ring import (
    CLOSED,
    CRC_FROM,
    EPOCH,
    EVENT,
    HEAD,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    NEXT_SEQ,
    PAD,
    PID,
    RECORD,
    START_TICKS,
    TAIL,
    RecordTooLarge,
    RingCorrupt,
    RingFull,
    RingReader,
    is_data_size,
    map_ring,
    record_bytes,
)

PAD_CRC = crc32(RECORD.pack(0, 0, 0, 0, PAD, 0)[CRC_FROM:])
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class RingWriter:
    """Appends records, one thread at a time, to the ring no other writer has open.

    The file is the only state: a kill between any two stores, and an exception there, leave a
    ring that goes on, at worst without the number that was about to be published.
    """

    def __init__(self, mapping: mmap.mmap) -> None:
        self._map = mapping
        self._words = memoryview(mapping).cast("Q")
        self._halves = memoryview(mapping).cast("I")
        self._size = len(mapping) - HEADER_BYTES
        self.max_payload = self._size // 4 - RECORD.size
        self._words[EPOCH] += 1
        self._words[PID] = os.getpid()
        self._words[START_TICKS] = _start_ticks()
        self._words[CLOSED] = 0

    @classmethod
    def open(cls, path: Path, data_bytes: int) -> RingWriter:
        """Go on with the ring at `path`, which keeps its size, or create one of `data_bytes`.

        Raises ValueError for a size no ring can have, RingCorrupt for anything else at `path`,
        RingFull, and OSError. A creation that fails leaves no file.
        """
        if not is_data_size(data_bytes):
            raise ValueError(f"a ring cannot have {data_bytes} bytes")
        try:
            with RingReader.open(path) as reader:
                _verify(reader)
        except FileNotFoundError:
            _create(path, data_bytes)
        return cls(map_ring(path, mmap.ACCESS_WRITE))

    @property
    def next_seq(self) -> int:
        return self._words[NEXT_SEQ]

    def append(self, payload: bytes, kind: int = EVENT) -> int:
        """Publish a record, over the oldest ones if need be, and return its number.

        `kind` is 0 to PAD - 1. Raises RecordTooLarge.
        """
        length = len(payload)
        if length > self.max_payload:
            raise RecordTooLarge(f"{length} bytes, at most {self.max_payload}")
        words, data = self._words, self._map
        head, seq = words[HEAD], words[NEXT_SEQ]
        total = record_bytes(length)
        at = head & (self._size - 1)
        room = self._size - at
        pad = room if room < total else 0
        end = head + pad + total
        if words[TAIL] < end - self._size:
            words[TAIL] = self._tail_from(end - self._size)
        at += HEADER_BYTES
        if pad:
            header = RECORD.pack(pad, PAD_CRC, 0, 0, PAD, 0)[:pad]
            data[at : at + len(header)] = header
            at = HEADER_BYTES
        body = at + RECORD.size
        RECORD.pack_into(data, at, total, 0, seq, length, kind, 0)
        data[body : body + length] = payload
        self._halves[(at >> 2) + 1] = crc32(payload, crc32(data[at + CRC_FROM : body]))
        words[NEXT_SEQ] = seq + 1
        words[HEAD] = end
        return seq

    def close(self) -> None:
        self._words[CLOSED] = 1
        self._words.release()
        self._halves.release()
        self._map.close()

    def _tail_from(self, offset: int) -> int:
        """Start of the first record at or behind `offset`."""
        tail = self._words[TAIL]
        while tail < offset:
            total = self._halves[(HEADER_BYTES + (tail & (self._size - 1))) >> 2]
            if not total:
                raise RingCorrupt(f"no record at offset {tail}")
            tail += total
        return tail


def _verify(reader: RingReader) -> None:
    """Hop over every record: a damaged length or number must not become the writer's."""
    reader.seek(reader.stats().last_seq)
    if reader.read(limit=1):
        raise RingCorrupt("a record is newer than the newest number")


def _create(path: Path, data_bytes: int) -> None:
    unborn = path.with_name(path.name + ".new")
    unborn.unlink(missing_ok=True)  # of a writer killed in here
    header = bytearray(HEADER_BYTES)
    HEADER.pack_into(header, 0, MAGIC, HEADER_BYTES, 0, data_bytes, time.time_ns())
    memoryview(header).cast("Q")[NEXT_SEQ] = 1
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(unborn, flags, 0o600), "wb") as file:
            file.write(header)
            # a store into a hole of a sparse file is SIGBUS once the disk is full
            if sys.platform == "darwin":
                for _ in range(data_bytes // RING_MIN_BYTES):
                    file.write(bytes(RING_MIN_BYTES))
            else:
                os.posix_fallocate(file.fileno(), 0, HEADER_BYTES + data_bytes)
        unborn.rename(path)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise RingFull(f"no room for {path} of {data_bytes} bytes") from error
        raise
    finally:
        unborn.unlink(missing_ok=True)


def _start_ticks() -> int:
    """Field 22 of our stat, which with the pid names this process; 0 where there is no /proc."""
    try:
        fields = Path("/proc/self/stat").read_text()
    except FileNotFoundError:
        return 0
    return int(fields.rpartition(")")[2].split()[19])
