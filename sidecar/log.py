"""Where the daemon's log goes: to stderr, and bounded where stderr is our own file.

Whoever starts the daemon detached (`client/launch.py`, launchd) makes `daemon.log` its stderr, so
that a traceback nobody caught is in it too. A terminal or the journal is not ours to rotate.
"""

from __future__ import annotations

import contextlib
import logging
import os
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def set_up(path: Path, max_bytes: int, kept: int) -> None:
    """Log to stderr. If that is the file `path`, keep it at about `max_bytes`, and `kept` older
    ones beside it. For the one daemon that holds the lock: rotation is no matter for two."""
    fds = [fd for fd in (1, 2) if _is(fd, path)]
    handler = _Rotating(path, max_bytes, kept, fds) if 2 in fds else logging.StreamHandler()
    logging.basicConfig(level=logging.INFO, format=_FORMAT, handlers=[handler])


class _Rotating(RotatingFileHandler):
    """Takes `fds` along to each new file: what is written past `logging` is kept and counts."""

    def __init__(self, path: Path, max_bytes: int, kept: int, fds: list[int]) -> None:
        self._fds = fds
        super().__init__(path, maxBytes=max_bytes, backupCount=kept, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        stream = super()._open()
        for fd in self._fds:
            os.dup2(stream.fileno(), fd)
        return stream


def _is(fd: int, path: Path) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(fd), path.stat())
    return False
