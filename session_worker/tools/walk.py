"""A bounded walk over a directory tree that leaves out what git ignores.

Runs in the search's child process, where seconds of it hold up nobody. Never follows a link, so
there are no loops.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Callable, Collection, Iterator

from session_worker.tools import gitignore
from session_worker.tools.search_job import PRUNED, WALK_ENTRIES
from sidecar.protocol.bounds import KIB

IGNORE_FILE_BYTES = 256 * KIB
"""Of one .gitignore; the rest of a larger one is not read."""

Rules = tuple[tuple[str, list[gitignore.Rule]], ...]
"""Of the .gitignore files that count, the outermost first: directory, with `/`, and rules."""


class Walk:
    """Iterate once: paths below `base`, in the order of `rg --sort path`, by the names' bytes.

    `enter` says whether to look into a directory. Afterwards `capped` and `unreadable` say what
    is missing.
    """

    def __init__(self, base: str, include_ignored: bool, enter: Callable[[str], bool]) -> None:
        self._base = base
        self._include_ignored = include_ignored
        self._enter = enter
        self._left = WALK_ENTRIES
        self.unreadable = 0

    @property
    def capped(self) -> bool:
        return self._left == 0

    def __iter__(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        prefix = self._base.rstrip("/") + "/"
        rules = () if self._include_ignored else _rules_above(self._base)
        stack = [self._entries(self._base, rules)]
        while stack:
            found = next(stack[-1], None)
            if found is None:
                stack.pop()
                continue
            entry, rules = found
            path = entry.path.removeprefix(prefix)
            yield path, entry
            if is_directory(entry) and self._enter(path):
                stack.append(self._entries(entry.path, rules))

    def _entries(self, directory: str, rules: Rules) -> Iterator[tuple[os.DirEntry[str], Rules]]:
        """What a directory holds, and the rules for what is below."""
        try:
            with os.scandir(directory) as found:
                entries = list(itertools.islice(found, self._left))
        except OSError:
            self.unreadable += 1
            return
        self._left -= len(entries)
        if not self._include_ignored:
            rules = _rules_in(directory, {entry.name for entry in entries}, rules)
        for entry in sorted(entries, key=lambda entry: os.fsencode(entry.name)):
            if entry.name not in PRUNED and not _is_ignored(entry.path, rules, is_directory(entry)):
                yield entry, rules


def is_directory(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        return entry.is_dir(follow_symlinks=False)
    return False


def _rules_above(base: str) -> Rules:
    """Of the directories above, up to the repository's top."""
    above: Rules = ()
    directory = base
    while directory != "/" and not os.path.lexists(f"{directory}/.git"):
        directory = os.path.dirname(directory)  # noqa: PTH120 -- names of any bytes, as strings
        above = _rules_in(directory, {".gitignore"}, ()) + above
    return above


def _rules_in(directory: str, names: Collection[str], above: Rules) -> Rules:
    if ".git" in names:  # a repository of its own
        above = ()
    if ".gitignore" not in names:
        return above
    prefix = directory.rstrip("/") + "/"
    return (*above, (prefix, gitignore.parse(_read(f"{prefix}.gitignore"))))


def _is_ignored(path: str, rules: Rules, directory: bool) -> bool:
    """The innermost file that says anything about a path decides."""
    for prefix, inner in reversed(rules):
        verdict = gitignore.verdict(inner, path.removeprefix(prefix), directory)
        if verdict is not None:
            return verdict
    return False


def _read(path: str) -> str:
    """Empty if it cannot be read, or is a pipe or a link, which git does not follow either."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return os.fsdecode(file.read(IGNORE_FILE_BYTES))
    return ""
