"""Which files the model has seen, and as what: nobody overwrites what it does not know."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

Fingerprint = tuple[int, int, int, int]

_UNREAD = "it exists and was not read in this session; read it first"
_CHANGED = "it has changed since it was read; read it again"


@dataclass(frozen=True)
class _Seen:
    """`on_disk`: the file held just what was seen. `digest` is of the text that a client had; None
    if it was read from the disk."""

    fingerprint: Fingerprint | None
    on_disk: bool = True
    digest: bytes | None = None


class SeenFiles:
    """One session's. Paths are canonical; a fingerprint is device, inode, size and mtime in ns, and
    None of a file that is not on the disk."""

    def __init__(self) -> None:
        self._seen: dict[Path, _Seen] = {}

    def note(self, path: Path, found: os.stat_result) -> None:
        self._seen[path] = _Seen(fingerprint(found))

    def note_text(
        self, path: Path, found: os.stat_result | None, text: str, *, on_disk: bool
    ) -> None:
        """Seen as a client has it; `on_disk` says whether the disk has the same."""
        self._seen[path] = _Seen(fingerprint(found), on_disk, _digest(text))

    def problem(self, path: Path, found: os.stat_result) -> str | None:
        """Why the model may not change the file yet, said to it; None if it may."""
        seen = self._seen.get(path)
        if seen is None:
            return _UNREAD
        return None if seen.on_disk and seen.fingerprint == fingerprint(found) else _CHANGED

    def problem_of_text(
        self, path: Path, found: os.stat_result | None, text: str, *, on_disk: bool
    ) -> str | None:
        """The same of what a client has. That it was saved meanwhile is no change; what was written
        past the client is one, though the client may not know it yet."""
        seen = self._seen.get(path)
        if seen is None:
            return _UNREAD
        is_untouched = seen.fingerprint == fingerprint(found)
        if seen.digest is None:
            return None if is_untouched and on_disk else _CHANGED
        return None if seen.digest == _digest(text) and (is_untouched or on_disk) else _CHANGED


def fingerprint(found: os.stat_result | None) -> Fingerprint | None:
    return found and (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
