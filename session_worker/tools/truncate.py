"""Output as the model sees it: control sequences gone, the middle left out when it is long.

Called by tools and the dispatcher. Never reads a whole large file, never splits a code point.
"""

from __future__ import annotations

import codecs
import os
import re
from dataclasses import dataclass

from sidecar.protocol.bounds import KIB, MIB, TOOL_TITLE_CHARS

RAW_PER_CHAR = 16
"""Bytes of a file looked at per character shown: 4 for UTF-8, the rest for what is stripped."""
COUNT_CHUNK_BYTES = 256 * KIB
"""Bytes read at once while lines are counted; larger pieces are slower, not faster."""
MARKER_CHARS = 60
"""Room for the line that stands for the omitted middle."""

_SEQUENCES = re.compile(
    r"""\x1b\[[0-?]*[ -/]*[@-~]?                   # CSI: colours, cursor
      | \x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?  # OSC, DCS and the like
      | \x1b[ -/]*[0-~]                            # all others""",
    re.VERBOSE,
)
_CONTROLS = re.compile(r"[\x01-\x08\x0b-\x1f\x7f-\x9f]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_UNFINISHED = re.compile(
    rb"(?:(?<!\r)\r+|\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*\x1b?|[ -/]*))\Z"
)
_CONTINUATION = re.compile(rb"\A[\x80-\xbf]{1,3}")


@dataclass(frozen=True)
class Excerpt:
    """`lines` and `size` (bytes) are the whole file's; `cut` says that `text` is not all of it."""

    text: str
    lines: int
    size: int
    cut: bool


def clean(text: str) -> str:
    """What a terminal would show in the end: no control characters but tab and newline."""
    text = _SEQUENCES.sub("", text)
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return json_safe(_CONTROLS.sub("", text))


def title(text: str) -> str:
    """Of a call, for a person: one line of bounded length."""
    text = " ".join(clean(text).split())
    return text if len(text) <= TOOL_TITLE_CHARS else text[:TOOL_TITLE_CHARS] + "…"


def json_safe(text: str) -> str:
    """Without NUL and lone surrogates, which JSON readers and the API choke on."""
    return _SURROGATES.sub("\ufffd", text.replace("\0", "\u2400"))


def shorten(text: str, head_chars: int, tail_chars: int) -> str:
    """At most `head_chars + tail_chars` characters, marker included; `text` is JSON-safe.

    The marker takes MARKER_CHARS of the tail. Cuts at line borders unless that loses half a part.
    """
    if len(text) <= head_chars + tail_chars:
        return text
    return _join(text, text, head_chars, tail_chars, text.count("\n"), len(text.encode()))


def excerpt(fd: int, head_chars: int, tail_chars: int) -> Excerpt:
    """The cleaned start and end of a file of any size; invalid UTF-8 becomes U+FFFD."""
    size = os.fstat(fd).st_size
    newlines = _count_newlines(fd, size)
    lines = newlines + (size > 0 and os.pread(fd, 1, size - 1) != b"\n")
    head_bytes, tail_bytes = RAW_PER_CHAR * head_chars, RAW_PER_CHAR * tail_chars
    if size <= head_bytes + tail_bytes:
        whole = clean(os.pread(fd, size, 0).decode(errors="replace"))
        text = shorten(whole, head_chars, tail_chars)
        return Excerpt(text, lines, size, cut=text != whole)
    head, _ = _decode(os.pread(fd, head_bytes, 0))
    tail, _ = _decode(os.pread(fd, tail_bytes, size - tail_bytes), inside=True)
    text = _join(clean(head), clean(tail), head_chars, tail_chars, newlines, size)
    return Excerpt(text, lines, size, cut=True)


def newest(fd: int, seen: int, limit_bytes: int) -> tuple[str, int]:
    """Cleaned output behind byte `seen`, for watching, and up to which byte it goes.

    Of more than `limit_bytes` only the end, after a word about the rest. Repaints of a line
    come as lines; a character or sequence that is not complete waits for the next call.
    """
    size = os.fstat(fd).st_size
    if size < seen:  # `echo x > /dev/stderr` opens the file anew and empties it
        seen = 0
    start = max(seen, size - limit_bytes)
    raw = os.pread(fd, size - start, start)
    unfinished = _UNFINISHED.search(raw)
    text, used = _decode(raw[: unfinished.start()] if unfinished else raw, inside=start > seen)
    if not used:
        return "", seen
    skipped = f"… {start - seen} bytes skipped …\n" if start > seen else ""
    return skipped + clean(re.sub(r"\r+\n?", "\n", text)), start + used


def size_text(size: int) -> str:
    """Bytes for people: `812B`, `96KB`, `64MB`."""
    if size < KIB:
        return f"{size}B"
    return f"{size / KIB:.0f}KB" if size < MIB else f"{size / MIB:.0f}MB"


def _join(start: str, end: str, head_chars: int, tail_chars: int, newlines: int, size: int) -> str:
    """First part of `start`, marker, last part of `end`; `newlines` and `size` are the whole's."""
    head = start[:head_chars]
    border = head.rfind("\n") + 1
    if border > len(head) // 2:
        head = head[:border]
    tail = end[-(tail_chars - MARKER_CHARS) :]
    border = tail.find("\n") + 1
    if border <= len(tail) // 2:
        tail = tail[border:]
    omitted = size_text(max(0, size - len(head.encode()) - len(tail.encode())))
    lines = newlines - head.count("\n") - tail.count("\n")
    gap = "" if head.endswith("\n") else "\n"
    return f"{head}{gap}… {f'{lines} lines/' if lines > 0 else ''}{omitted} omitted …\n{tail}"


def _decode(raw: bytes, *, inside: bool = False) -> tuple[str, int]:
    """Text of a piece without the broken characters at its borders, and the bytes up to its end.

    `inside` says that the piece does not start at a border of our choice.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(_CONTINUATION.sub(b"", raw) if inside else raw)
    return text, len(raw) - len(decoder.getstate()[0])


def _count_newlines(fd: int, size: int) -> int:
    """Of the first `size` bytes only: the file may be growing as fast as we read."""
    return sum(
        os.pread(fd, min(COUNT_CHUNK_BYTES, size - offset), offset).count(b"\n")
        for offset in range(0, size, COUNT_CHUNK_BYTES)
    )
