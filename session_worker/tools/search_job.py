"""What the search's child process is asked, and how it ends; both sides import this."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from sidecar.protocol.bounds import MIB

PRUNED = frozenset({".git", "node_modules", ".venv"})
"""Never entered, whatever a .gitignore says; whoever wants to look inside names them."""

WALK_ENTRIES = 50_000
"""Looked at by one walk: some seconds of work; what is larger needs a narrower path."""
SEARCH_FILE_BYTES = 64 * MIB
"""Of a file that is searched: it may be one line, and is then in memory up to four times."""
LINE_BYTES = 2000
"""Of a line that a search gives back: 500 characters, whatever they are."""


class Exit(IntEnum):
    """The first two are ripgrep's, which says 2 also after an answer that lacks some files."""

    DONE = 0
    BAD_PATTERN = 2
    CAPPED = 3


@dataclass(frozen=True)
class FindJob:
    """The newest `limit` of the files, or directories, below `base` that `pattern` matches."""

    base: str
    pattern: str
    directories: bool
    include_ignored: bool
    limit: int


@dataclass(frozen=True)
class GrepJob:
    """Search `file` in `base`, or all files below it that `glob` admits."""

    base: str
    file: str | None
    pattern: str
    glob: str | None
    mode: str
    context: int
    ignore_case: bool
    multiline: bool
    include_ignored: bool
