"""A page of a file, by line numbers.

Called by `read_file`. Pure but for reading what it is given. Memory is bounded by the page, time by
SCAN_BYTES: never reads a whole large file into memory, and never relies on its size, which may
change at any moment.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from session_worker.tools.truncate import COUNT_CHUNK_BYTES
from sidecar.protocol.bounds import MIB

LINES_MAX = 2000
"""Lines of one page (tools-and-ux.md §1.3)."""
LINE_CHARS = 2000
"""Of one line; a minified file is one line of megabytes."""
PAGE_BYTES = 49_000
"""Of the lines with their numbers; with the notes a result stays under 50 KB."""
SCAN_BYTES = 512 * MIB
"""How far lines are counted and read: half a second from memory, five from a disk."""

_LINE_BYTES = 4 * LINE_CHARS + 4
"""Of a line that are decoded: LINE_CHARS whole characters, and proof that there is more."""


@dataclass(frozen=True)
class Source:
    """UTF-8 without a byte order mark; `read` is like pread: how many bytes, from where."""

    size: int
    read: Callable[[int, int], bytes]


@dataclass(frozen=True)
class Page:
    """`first` to `last` of `total` lines; `last` is less than `first` if there are none there.

    `is_whole` says that `total` is the whole file's, `is_valid` that the lines are UTF-8.
    """

    text: str
    first: int
    last: int
    total: int
    is_whole: bool
    is_valid: bool


def page(source: Source, offset: int, limit: int) -> Page:
    """`limit` lines from number `offset` on, which counts from the end if it is negative."""
    size = min(source.size, SCAN_BYTES)
    newlines = _newlines_before(source, size)
    total = newlines[-1] + (size > 0 and source.read(1, size - 1) != b"\n")
    first = max(1, offset if offset >= 0 else total + 1 + offset)
    shown: list[str] = []
    room, is_valid = PAGE_BYTES, True
    for raw, length in _lines(source, size, _start(source, newlines, first), limit):
        whole = raw.decode(errors="replace")
        text = whole[:LINE_CHARS]
        is_valid = is_valid and raw.startswith(text.encode())
        if len(whole) > LINE_CHARS:
            text += f"… [cut, the line has {length} bytes]"
        text = f"{first + len(shown):6d}\t{text}\n"
        room -= len(text.encode())
        if room < 0:
            break
        shown.append(text)
    return Page("".join(shown), first, first + len(shown) - 1, total, size == source.size, is_valid)


def _newlines_before(source: Source, size: int) -> list[int]:
    """How many there are before each chunk, and in all."""
    counts = [0]
    for at in range(0, size, COUNT_CHUNK_BYTES):
        chunk = source.read(min(COUNT_CHUNK_BYTES, size - at), at)
        counts.append(counts[-1] + chunk.count(b"\n"))
    return counts


def _start(source: Source, newlines: list[int], line: int) -> int:
    """Where a line starts; behind the last line if there is no such line."""
    if line == 1:
        return 0
    chunk = bisect.bisect_left(newlines, line - 1) - 1
    if chunk + 1 == len(newlines):
        return source.size
    at = chunk * COUNT_CHUNK_BYTES
    data = source.read(COUNT_CHUNK_BYTES, at)
    rest = data.split(b"\n", line - 1 - newlines[chunk])[-1]
    return at + len(data) - len(rest)


def _lines(source: Source, size: int, at: int, limit: int) -> Iterator[tuple[bytes, int]]:
    """Start and length of each line, without its end; from byte `at` on."""
    for _ in range(limit):
        if at >= size:
            return
        start = source.read(min(_LINE_BYTES, size - at), at)
        end = _line_end(source, size, at, start)
        length = end - at
        start = start[:length]
        if len(start) == length and start.endswith(b"\r"):
            start, length = start[:-1], length - 1
        yield start, length
        at = end + 1


def _line_end(source: Source, size: int, at: int, start: bytes) -> int:
    """Where the next newline is, or the end of what there is; `start` is there to begin with."""
    chunk = start
    while (found := chunk.find(b"\n")) < 0:
        at += len(chunk)
        if not chunk or at >= size:
            return at
        chunk = source.read(min(COUNT_CHUNK_BYTES, size - at), at)
    return at + found
