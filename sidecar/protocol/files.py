"""Small files that must be whole after any crash: written aside, then renamed into place."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Replace `path` (mode 0600) by `value`; readers see the old or the new file, never a part."""
    aside = path.with_name(path.name + ".tmp")
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.flush()
        os.fsync(fd)
    aside.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """The object in `path`. Raises OSError, or ValueError for anything but a JSON object."""
    value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return value  # pyright: ignore[reportUnknownVariableType]


@contextmanager
def exclusive(path: Path) -> Generator[None]:
    """Nobody else who asks for it changes `path` meanwhile."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open(path.with_suffix(".lock"), flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
