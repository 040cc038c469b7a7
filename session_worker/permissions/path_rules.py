"""Whether a path rule is about a file; gitignore's patterns, without exceptions by `!`.

Called for each file a call names and each rule. Pure but for `realpath`, which makes the fixed
part of a rule canonical, as the files are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from session_worker.permissions.match import Match
from session_worker.permissions.paths import Realpath, canonical, within
from sidecar.protocol.rules import Rule


@dataclass(frozen=True)
class Place:
    """A file: where it is without links, and by which absolute names it was called."""

    canonical: str
    names: tuple[str, ...]


def path_match(
    rule: Rule, place: Place, roots: Sequence[Path], home: Path, realpath: Realpath, *, loose: bool
) -> Match:
    """A path rule; it covers what is below a directory as well.

    A relative one counts from the first root. `loose`, for refusing, it counts at any depth,
    whatever the case of the letters, and by every name of the file.
    """
    if rule.spec is None:
        return Match.YES
    paths = {place.canonical, *place.names} if loose else {place.canonical}
    anchored = _anchored(rule.spec, home, realpath)
    for path in paths:
        if anchored is not None:
            found = any(_covers(pattern, _parts(path), fold=loose) for pattern in anchored)
        else:
            found = _covers_relative(rule.spec, path, roots, loose=loose)
        if found:
            return Match.YES
    return Match.NO


def glob_match(rule: Rule, pattern: str, cwd: str) -> Match:
    """A path rule against a pattern for file names: whether the two may mean one file."""
    if rule.spec is None:
        return Match.YES
    rule_parts = [part for part in _parts(rule.spec) if part != "**"]
    parts = _parts(pattern)
    if not rule_parts or not parts:
        return Match.MAYBE
    above = any(
        fnmatchcase(part.casefold(), wanted.casefold())
        for part in (*_parts(cwd), *parts[:-1])
        for wanted in rule_parts
    )
    return Match.MAYBE if above or may_meet(parts[-1], rule_parts[-1]) else Match.NO


def may_meet(glob: str, pattern: str) -> bool:
    """Whether some name fits both; bash's `*` and `?` do not stand for a leading dot."""
    if pattern[:1] == "." and glob[:1] in ("*", "?", "["):
        return False
    return _meet(_letters(glob), _letters(pattern))


def _letters(pattern: str) -> str:
    """With every `[…]` as a `?`, which is more."""
    return re.sub(r"\[[^\]]+\]", "?", pattern).casefold()


def _meet(left: str, right: str) -> bool:
    """Both patterns stepped through together, as sets of positions in `right`."""
    reached = _past_stars({0}, right)
    for letter in left:
        if letter == "*":
            reached = set(range(min(reached, default=len(right) + 1), len(right) + 1))
            continue
        step: set[int] = set()
        for at in reached:
            if at < len(right) and right[at] == "*":
                step.add(at)
            elif at < len(right) and (letter == "?" or right[at] in ("?", letter)):
                step.add(at + 1)
        reached = _past_stars(step, right)
    return len(right) in reached


def _past_stars(positions: set[int], pattern: str) -> set[int]:
    found: set[int] = set()
    for at in positions:
        found.add(at)
        while at < len(pattern) and pattern[at] == "*":
            at += 1
            found.add(at)
    return found


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _anchored(spec: str, home: Path, realpath: Realpath) -> list[tuple[str, ...]] | None:
    """The parts of an absolute rule, as written and with its fixed part canonical."""
    if spec == "~" or spec.startswith("~/"):
        spec = str(home) + spec[1:]
    if not spec.startswith("/"):
        return None
    parts = _parts(spec)
    fixed = next((at for at, part in enumerate(parts) if re.search(r"[*?\[]", part)), len(parts))
    real = canonical("/".join(parts[:fixed]), "/", realpath)
    return [parts, (*_parts(real), *parts[fixed:])] if real else [parts]


def _covers_relative(spec: str, path: str, roots: Sequence[Path], *, loose: bool) -> bool:
    pattern = _parts(spec)
    for root in roots if loose else roots[:1]:
        if within(path, str(root)):
            below = _parts(path[len(str(root)) :])
            return _covers(("**", *pattern) if loose else pattern, below, fold=loose)
    return loose and _covers(("**", *pattern), _parts(path), fold=True)


def _covers(pattern: Sequence[str], parts: Iterable[str], *, fold: bool) -> bool:
    """Whether `pattern` fits the path or one of the directories it is in."""
    if fold:
        pattern = [part.casefold() for part in pattern]
        parts = [part.casefold() for part in parts]
    end = len(pattern)
    states = _past_double_stars({0}, pattern)
    for part in parts:
        if end in states:
            return True
        step = {
            at if pattern[at] == "**" else at + 1 for at in states if fnmatchcase(part, pattern[at])
        }
        states = _past_double_stars(step, pattern)
    return end in states


def _past_double_stars(states: set[int], pattern: Sequence[str]) -> set[int]:
    found: set[int] = set()
    for at in states:
        found.add(at)
        while at < len(pattern) and pattern[at] == "**":
            at += 1
            found.add(at)
    return found
