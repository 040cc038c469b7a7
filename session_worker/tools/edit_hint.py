"""Why a text was not found, as far as that can be guessed.

Called by the edits of `edit_file`. Pure. A hint is for the model to read; nothing is changed by it.
"""

from __future__ import annotations

import bisect
import difflib
import heapq
import itertools
import re
import unicodedata
from collections.abc import Callable

from session_worker.tools.truncate import json_safe

QUOTED_CHARS = 1_000
"""Of the file's own text in a hint."""
CLOSE_LINES = 3
LINES_COMPARED = 200
"""Compared letter by letter, those with the most words in common: a fifth of a second at worst."""
LINE_CHARS = 120
"""Of a line that are compared and shown."""

_NUMBERED = re.compile(r"\s*\d+\t")
_WORD = re.compile(r"\w+")
_LOOK_ALIKE = str.maketrans("‘’‚“”„‐‑‒–—−", "'''\"\"\"------")


def hint(text: str, old: str) -> str:
    """What to append to "was not found"; both texts have LF line ends."""
    if all(_NUMBERED.match(line) for line in old.rstrip("\n").split("\n")):
        return "; leave out the line numbers that read_file puts before each line"
    if "\ufffd" in old and "\ufffd" not in text:
        return "; \ufffd stands for bytes that are no text, leave them out of old_string"
    lines = text.split("\n")
    for fold, difference in (
        (_unspaced, "only in whitespace"),
        (_plain, "only in whitespace and characters that look alike"),
    ):
        if span := _find(lines, old, fold):
            first, last = span
            quoted = "\n".join(lines[first : last + 1])
            if first == last:
                where = f"line {first + 1} differs"
            else:
                where = f"lines {first + 1}–{last + 1} differ"
            return f"; {where} {difference}:\n{json_safe(quoted[:QUOTED_CHARS])}"
    return _close_lines(lines, old)


def _find(lines: list[str], old: str, fold: Callable[[str], str]) -> tuple[int, int] | None:
    """First and last line, from 0, of where `old` is once both are folded."""
    wanted = "".join(map(fold, old.split("\n")))
    folded = [fold(line) for line in lines]
    at = "".join(folded).find(wanted)
    if not wanted or at < 0:
        return None
    ends = list(itertools.accumulate(map(len, folded)))
    return bisect.bisect_right(ends, at), bisect.bisect_left(ends, at + len(wanted))


def _unspaced(line: str) -> str:
    return "".join(line.split())


def _plain(line: str) -> str:
    return _unspaced(unicodedata.normalize("NFKC", line).translate(_LOOK_ALIKE))


def _close_lines(lines: list[str], old: str) -> str:
    """Lines like the first one looked for that says anything."""
    wanted = next((line.strip() for line in old.split("\n") if line.strip()), "")[:LINE_CHARS]
    numbers: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        numbers.setdefault(line.strip()[:LINE_CHARS], number)
    words = set(_WORD.findall(wanted))
    likely = heapq.nlargest(
        LINES_COMPARED, numbers, key=lambda line: len(words.intersection(_WORD.findall(line)))
    )
    close = difflib.get_close_matches(wanted, likely, CLOSE_LINES)
    if not close:
        return ""
    shown = "\n".join(f"{numbers[line]:6d}\t{json_safe(line)}" for line in close)
    return f"; the closest lines to its first one:\n{shown}"
