"""What a search back end prints, cut into records, and the page of them that the model gets.

Called by `grep`. Pure, but for the stream it reads. Never holds more than a page and one line.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from session_worker.tools.search_job import LINE_BYTES
from session_worker.tools.truncate import json_safe
from sidecar.protocol.bounds import KIB

GREP_LINE_CHARS = 500
"""Of a line shown: minified files are one line."""
GREP_PAGE_BYTES = 48 * KIB
"""Of one answer, which fits into TOOL_RESULT_CHARS with its notes; `offset` goes on behind it."""
PIECE_BYTES = 64 * KIB
"""Read at once: more than a path and the piece of a line behind it."""

_LINE = re.compile(rb"(\d+)([:-])(.*)", re.DOTALL)


@dataclass
class Page:
    """What `fill` found: `rows` to show, `shown` of them matches, `seen` matches in all so far.

    `more` says that there is a match behind the page, `junk` is what no record was in: errors.
    """

    limit: int
    offset: int
    context: int = 0
    rows: list[str] = field(default_factory=list[str])
    shown: int = 0
    seen: int = 0
    more: bool = False
    junk: str = ""

    def fill(self, stream: BinaryIO, name: Callable[[bytes], str | None]) -> bool:
        """Whether the stream was read to its end; `name` shows a path, or None to pass over it."""
        path = label = None
        size = last = reach = 0
        before = deque[tuple[int, str]](maxlen=self.context)
        for found, rest in self._records(stream):
            if found != path:
                path, label = found, name(found)
                last, reach = -1, 0
                before.clear()
            line = _LINE.match(rest)
            if label is None or line is None:
                continue
            number, is_match = int(line[1]), line[2] == b":"
            self.seen += is_match
            is_new = is_match and self.seen > self.offset  # else it was on a page before
            sign = ":" if is_new else "-"
            row = f"{label}{sign}{number}{sign}{_cut(line[3])}"
            if not is_new and number > reach:
                before.append((number, row))
                continue
            block = [*before, (number, row)]
            if self.context and self.rows and block[0][0] != last + 1:
                block.insert(0, (0, "--"))
            size += sum(len(text.encode()) + 1 for _, text in block)
            too_large = self.shown > 0 and size > GREP_PAGE_BYTES
            if too_large or (is_new and self.shown == self.limit):
                self.more = True
                return False
            self.rows += [text for _, text in block]
            last = number
            before.clear()
            if is_new:
                self.shown += 1
                reach = number + self.context
        return True

    def fill_counts(
        self, stream: BinaryIO, name: Callable[[bytes], str | None], counts: bool
    ) -> bool:
        """The same for records of files with the number of their matches."""
        size = 0
        for path, rest in self._records(stream):
            label = name(path)
            if label is None:
                continue
            self.seen += 1
            row = f"{label}:{rest.strip().decode(errors='replace')}" if counts else label
            size += len(row.encode()) + 1
            if self.shown == self.limit or size > GREP_PAGE_BYTES:
                self.more = True
                return False
            if self.seen > self.offset:
                self.rows.append(row)
                self.shown += 1
        return True

    def _records(self, stream: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
        """Path, and the start of the line behind its NUL. A path may hold line ends, a line not."""
        path = previous = b""
        while piece := stream.readline(PIECE_BYTES):
            start, nul, rest = piece.partition(b"\0")
            path += start
            if not nul:
                path = path[-PIECE_BYTES:]
                continue
            while not piece.endswith(b"\n") and (piece := stream.readline(PIECE_BYTES)):
                pass
            # ripgrep says so in between when a file turns out to be binary after all.
            if previous and path.startswith(previous + b": WARNING: "):
                path = path.partition(b"\n")[2]
            yield path, rest.rstrip(b"\r\n")
            path, previous = b"", path
        self.junk = path.decode(errors="replace").strip()


def _cut(line: bytes) -> str:
    text = json_safe(line[:LINE_BYTES].decode(errors="replace"))
    return text if len(text) <= GREP_LINE_CHARS else text[:GREP_LINE_CHARS] + "…"
