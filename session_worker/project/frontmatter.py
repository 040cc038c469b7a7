"""The block of `key: value` lines that a SKILL.md begins with. Pure.

Not YAML, on purpose: what counts are three texts, and many files that work elsewhere are no YAML
(`description: Do this: that`). Quotes, `|`, `>` and values over several lines mean what they do
there.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress

from session_worker.tools.truncate import json_safe

KEYS = ("name", "description", "compatibility")
"""What is read; whatever else stands there may be as wrong as it likes."""
HINTS = ("argument-hint", "user-invocable")
"""Read where they are as they should be."""

_FENCE = "---"
_KEY = re.compile(r"([A-Za-z][\w-]*):(?:\s+(.*))?")
_BLOCK = re.compile(r"[|>][-+0-9]*\s*(?:#.*)?")
_QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')\s*(?:#.*)?""")
_COMMENT = re.compile(r"(?:^|\s)#.*")


def split(text: str) -> tuple[dict[str, str], str]:
    """(values of `KEYS` and `HINTS`, what comes after). Raises ValueError with the reason, for a
    person."""
    first, *lines = text.split("\n")
    if first.rstrip() != _FENCE:
        raise ValueError("it does not begin with a line ---")
    end = next((n for n, line in enumerate(lines) if line.rstrip() == _FENCE), None)
    if end is None:
        raise ValueError("its frontmatter does not end: a line --- is missing")
    values: dict[str, str] = {}
    for key, written in _entries(lines[:end]):
        if key in values:
            raise ValueError(f"{key} is given twice")
        if key in KEYS:
            values[key] = json_safe(_value(key, written))
        elif key in HINTS:
            with suppress(ValueError):
                values[key] = json_safe(_value(key, written))
    return values, "\n".join(lines[end + 1 :]).strip()


def _entries(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Keys with the lines of their values; the first is what stands behind the colon."""
    entries: list[tuple[str, list[str]]] = []
    for number, line in enumerate(lines, start=2):
        if entries and (not line.strip() or line[0] in " \t-"):
            entries[-1][1].append(line.strip())
        elif found := _KEY.fullmatch(line.rstrip()):
            entries.append((found[1], [(found[2] or "").strip()]))
        elif line.strip() and line[0] != "#":
            raise ValueError(f"line {number} is not of the form key: value")
    return entries


def _value(key: str, lines: list[str]) -> str:
    first, *more = lines
    if _BLOCK.fullmatch(first):
        return "\n".join(more).strip()
    if first[:1] not in ('"', "'"):
        return " ".join(_COMMENT.sub("", line) for line in lines).strip()
    quoted = _QUOTED.fullmatch(" ".join(lines).strip())
    if quoted is None:
        raise ValueError(f"{key}: the quotes are not closed, or something follows them")
    if first[0] == "'":
        return quoted[1][1:-1].replace("''", "'")
    try:
        return json.loads(quoted[1], strict=False)
    except ValueError:
        raise ValueError(f"{key}: an unknown escape between the quotes") from None
