"""File patterns: `*`, `?`, `[ab]`, `[!ab]`, `{a,b}`, and `**` for any number of directories.

Used by `glob`, by `grep` for its file filter, by their child process and by `gitignore`. Pure.
Never backtracks: patterns come from a model or a hostile repository, and so do names.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass

BRACE_ALTERNATIVES = 100
"""Patterns that one with braces may stand for: groups multiply."""

_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_MAGIC = re.compile(r"[*?\[{]")

Part = Callable[[str], object] | None
"""Whether a name fits; None is `**`."""


class BadPattern(ValueError):
    """Why a pattern cannot be used, said to the model."""


@dataclass(frozen=True)
class Glob:
    """A pattern for paths relative to where a walk starts."""

    alternatives: tuple[tuple[Part, ...], ...]

    def matches(self, path: str) -> bool:
        return any(len(parts) in _reached(parts, path) for parts in self.alternatives)

    def may_hold(self, directory: str) -> bool:
        """Whether anything below `directory` can match."""
        return any(min(_reached(p, directory), default=len(p)) < len(p) for p in self.alternatives)


def parse(pattern: str) -> Glob:
    """Raises BadPattern for too many braces, and for `..`, which a walk never goes."""
    return Glob(tuple(_parts(plain) for plain in _expanded(pattern)))


def file_filter(pattern: str | None) -> Callable[[str], bool]:
    """As ripgrep reads `--glob`: `!` excludes; without a slash the name alone counts."""
    if not pattern:
        return lambda _: True
    plain = pattern.removeprefix("!")
    glob = parse(plain if "/" in plain else f"**/{plain}")
    return lambda path: glob.matches(path) != pattern.startswith("!")


def split_literal(pattern: str) -> tuple[str, str]:
    """The directories a pattern names outright, and the rest: its last part at least."""
    *directories, last = pattern.split("/")
    literal = next((n for n, part in enumerate(directories) if _MAGIC.search(part)), None)
    rest = [*directories[literal:], last] if literal is not None else [last]
    start = "/".join(directories[:literal])
    return start or ("/" if pattern.startswith("/") else "."), "/".join(rest)


def _expanded(pattern: str) -> list[str]:
    """Without braces; those that hold no comma stand for themselves, as in a shell."""
    todo, done = [pattern], list[str]()
    while todo:
        pattern = todo.pop()
        if found := _BRACES.search(pattern):
            head, tail = pattern[: found.start()], pattern[found.end() :]
            todo += [head + choice + tail for choice in found[1].split(",")]
        else:
            done.append(pattern)
        if len(todo) + len(done) > BRACE_ALTERNATIVES:
            raise BadPattern(f"its braces stand for more than {BRACE_ALTERNATIVES} patterns")
    return done


def _parts(pattern: str) -> tuple[Part, ...]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if ".." in names:
        raise BadPattern("'..' may only stand in front of the first wildcard")
    return tuple(part(name) for name in names)


def part(name: str) -> Part:
    """One part of a pattern. fnmatch makes atomic groups of its stars, so no name makes it slow."""
    if name == "**":
        return None
    return re.compile(fnmatch.translate(name.replace("[^", "[!"))).match


def _reached(parts: tuple[Part, ...], path: str) -> set[int]:
    """How many parts of a pattern the whole of `path` can stand for."""
    reached = _skipping(parts, {0})
    for name in path.split("/"):
        if not reached:
            break
        after = set[int]()
        for n in reached:
            if n < len(parts):
                fits = parts[n]
                if fits is None:
                    after.add(n)
                elif fits(name):
                    after.add(n + 1)
        reached = _skipping(parts, after)
    return reached


def _skipping(parts: tuple[Part, ...], reached: set[int]) -> set[int]:
    """`**` may stand for no directory at all."""
    for n in range(min(reached, default=len(parts)), len(parts)):
        if n in reached and parts[n] is None:
            reached.add(n + 1)
    return reached
