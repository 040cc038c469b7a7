"""Replaces exact text, and leaves every other character as it is.

Called by `edit_file`. Pure. Texts are compared with LF line ends, because models write no others;
what is put in gets the line ends of its place. Never applies what only nearly matches: another
editor ruined quotation marks that way.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from session_worker.tools.confine import Refused
from session_worker.tools.edit_hint import hint
from session_worker.tools.truncate import size_text
from sidecar.protocol.bounds import MIB

EDIT_BYTES = 1 * MIB
"""Of a file that can be edited, before and after: what is larger was made by a program, and an edit
that multiplies its own matches must end somewhere."""
PLACES_SHOWN = 10

_LINE_END = re.compile(r"\r?\n")


class Edit(BaseModel):
    model_config = ConfigDict(extra="forbid")

    old_string: str = Field(
        description="exact text incl. whitespace, unique in the file unless replace_all"
    )
    new_string: str
    replace_all: bool = False


@dataclass(frozen=True)
class Edited:
    """`lines` are where each replacement begins, in the text as it was before its edit."""

    text: str
    lines: list[int]


def apply(text: str, edits: Sequence[Edit]) -> Edited:
    """All edits, each on what the one before has made of `text`; raises Refused if one fails."""
    lines: list[int] = []
    for number, edit in enumerate(edits, 1):
        try:
            edited = _apply(text, edit)
        except Refused as refusal:
            which = f"edit {number} of {len(edits)}: " if len(edits) > 1 else ""
            raise Refused(f"nothing was changed: {which}{refusal}") from None
        text = edited.text
        lines += edited.lines
    return Edited(text, lines)


def places(lines: Sequence[int]) -> str:
    """Line numbers in a message."""
    more = ", …" if len(lines) > PLACES_SHOWN else ""
    return f"line{'s' if lines[1:] else ''} {', '.join(map(str, lines[:PLACES_SHOWN]))}{more}"


class _LineEnds:
    """Where a text's lines end once CRLF has become LF, and where that is in the text itself."""

    def __init__(self, text: str) -> None:
        self.at: list[int] = []
        self.ends: list[str] = []
        self._shift = [0]
        for match in _LINE_END.finditer(text):
            self.at.append(match.start() - self._shift[-1])
            self.ends.append(match[0])
            self._shift.append(self._shift[-1] + len(match[0]) - 1)

    def origin(self, place: int) -> int:
        """A place at a line end is before all of it."""
        return place + self._shift[self.line(place)]

    def line(self, place: int) -> int:
        """Number of the line, from 0."""
        return bisect.bisect_left(self.at, place)

    def adapt(self, new: str, start: int, end: int) -> str:
        """`new` with the line ends that are between `start` and `end`, then with the next ones."""
        first, last = self.line(start), self.line(end)
        then = self.ends[last : last + 1] or self.ends[-1:] or ["\n"]
        ends = itertools.chain(self.ends[first:last], itertools.repeat(then[0]))
        return re.sub("\n", lambda _: next(ends), new)


def _apply(text: str, edit: Edit) -> Edited:
    for name in ("old_string", "new_string"):
        if problem := _unusable(getattr(edit, name)):
            raise Refused(f"{name} {problem}")
    flat, old, new = _flat(text), _flat(edit.old_string), _flat(edit.new_string)
    if not old:
        raise Refused("old_string is empty; write_file writes whole files")
    if old == new:
        raise Refused("old_string and new_string are the same")
    ends = _LineEnds(text)
    found = _matches(flat, old, overlapping=not edit.replace_all)
    if not found:
        raise Refused(f"old_string was not found{hint(flat, old)}")
    lines = [ends.line(place) + 1 for place in found]
    if len(found) > 1 and not edit.replace_all:
        raise Refused(
            f"{len(found)} matches at {places(lines)}; add text around the one you mean, "
            "or set replace_all"
        )
    if len(text) + len(found) * (len(new) - len(old)) > EDIT_BYTES:
        raise Refused(f"the file would have more than {size_text(EDIT_BYTES)}")
    # A common end is not touched, so that its line ends stay; a common start gets its own back.
    kept = _common_end(old, new)
    new = new[: len(new) - kept]
    parts: list[str] = []
    done = 0
    for place in found:
        end = place + len(old) - kept
        parts += text[done : ends.origin(place)], ends.adapt(new, place, end)
        done = ends.origin(end)
    return Edited("".join([*parts, text[done:]]), lines)


def _matches(flat: str, old: str, *, overlapping: bool) -> list[int]:
    found: list[int] = []
    at = flat.find(old)
    while at >= 0:
        found.append(at)
        at = flat.find(old, at + (1 if overlapping else len(old)))
    return found


def _common_end(some: str, other: str) -> int:
    pairs = enumerate(zip(reversed(some), reversed(other), strict=False))
    return next((at for at, (one, two) in pairs if one != two), min(len(some), len(other)))


def _flat(text: str) -> str:
    return text.replace("\r\n", "\n")


def _unusable(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"is not valid Unicode at character {error.start}: {error.reason}"
    return None
