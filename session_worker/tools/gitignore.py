"""The patterns of a .gitignore file, for a walk that comes to every directory on the way.

Used by `walk`. Pure. Judges an entry and not what it is in: what is ignored is not entered, unless
somebody named it, and then they want what is in it. pathspec's GitIgnoreSpec is not used: it judges
whole paths, so `*` with `!*/` behind it let no directory in, and a dozen stars in the .gitignore of
a hostile repository kept it busy for hours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from session_worker.tools.glob_pattern import Glob, Part, part


@dataclass(frozen=True)
class Rule:
    """`matches` gets a path relative to the file's directory, and its last part."""

    ignores: bool
    only_directories: bool
    matches: Callable[[str, str], object]


def parse(text: str) -> list[Rule]:
    """The rules of a file, the last and so the strongest first."""
    return [rule for line in reversed(text.split("\n")) if (rule := _rule(line))]


def verdict(rules: Iterable[Rule], path: str, directory: bool) -> bool | None:
    """Whether `path` is ignored; None if the rules say nothing about it."""
    name = path.rpartition("/")[2]
    for rule in rules:
        if (directory or not rule.only_directories) and rule.matches(path, name):
            return rule.ignores
    return None


def _rule(line: str) -> Rule | None:
    line = line.removesuffix("\r")
    kept = line.rstrip(" ")
    if kept != line and kept.endswith("\\"):
        kept += " "
    pattern = kept.removeprefix("!")
    names = pattern.strip("/").split("/")
    if kept.startswith("#") or names == [""]:
        return None
    ignores, only_directories = pattern == kept, pattern.endswith("/")
    if names[-1] == "**":
        names.append("*")  # what is in it, not itself
    parts = tuple(part(_unescaped(name)) for name in names)
    return Rule(ignores, only_directories, _matcher(parts, "/" in pattern.rstrip("/")))


def _matcher(parts: tuple[Part, ...], anchored: bool) -> Callable[[str, str], object]:
    """Looks at the ends of a path first: almost every rule is about something else."""
    first, last = (end or bool for end in (parts[0], parts[-1]))
    if not anchored:
        return lambda _, name: last(name)
    glob = Glob((parts,))
    return lambda path, name: last(name) and first(path.partition("/")[0]) and glob.matches(path)


def _unescaped(name: str) -> str:
    """With brackets for backslashes, as `glob_pattern` has it."""
    return re.sub(r"\\(.)", lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], name)
