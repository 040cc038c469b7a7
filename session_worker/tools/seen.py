"""Which files the model has seen, and as what: nobody overwrites what it does not know."""

from __future__ import annotations

import os
from pathlib import Path

Fingerprint = tuple[int, int, int, int]


class SeenFiles:
    """One session's. Paths are canonical; a fingerprint is device, inode, size and mtime in ns."""

    def __init__(self) -> None:
        self._seen: dict[Path, Fingerprint] = {}

    def note(self, path: Path, found: os.stat_result) -> None:
        self._seen[path] = _fingerprint(found)

    def problem(self, path: Path, found: os.stat_result) -> str | None:
        """Why the model may not change the file yet, said to it; None if it may."""
        seen = self._seen.get(path)
        if seen is None:
            return "it exists and was not read in this session; read it first"
        if seen != _fingerprint(found):
            return "it has changed since it was read; read it again"
        return None


def _fingerprint(found: os.stat_result) -> Fingerprint:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
