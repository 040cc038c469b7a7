"""Files that hold what is too long for the model, private to the session.

Each is locked while somebody may write to it: a command inherits the lock with the descriptor. Of
the others the oldest make room for new ones. What commands make in the directory of their temporary
files, which is in here, is theirs and stays.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import re
from contextlib import suppress
from pathlib import Path

from session_worker.tools.spec import ToolContext
from sidecar.protocol.bounds import MIB

FILE_STEM_CHARS = 64
"""Of a call id in a file's name."""
SPILL_BYTES = 1024 * MIB
"""Of one session's files when a new one is made: sixteen outputs at their cap. What is written to
may go over it, by BASH_OUTPUT_BYTES for each command that runs."""
SPILL_FILES = 200
"""Of one session: all are looked at before each new one, which takes a millisecond for so many."""


def create_file(ctx: ToolContext, suffix: str) -> tuple[int, Path]:
    """A new file named for the call, to append to: `echo x > /dev/stderr` empties the output
    file, and the other writers must go on at its new end."""
    ctx.spill_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    _make_room(ctx.spill_dir)
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", ctx.call_id)[:FILE_STEM_CHARS] or "call"
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    number = itertools.count(1)
    path = ctx.spill_dir / f"{stem}{suffix}"
    while True:
        try:
            fd = os.open(path, flags, 0o600)
        except FileExistsError:
            path = path.with_name(f"{stem}-{next(number)}{suffix}")
        else:
            _lock(fd)
            return fd, path


def _make_room(directory: Path) -> None:
    """Remove the oldest files while they are too many, or too large together."""
    files: list[tuple[int, int, str]] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):  # gone meanwhile
                if not entry.is_dir(follow_symlinks=False):
                    found = entry.stat(follow_symlinks=False)
                    files.append((found.st_mtime_ns, found.st_size, entry.path))
    count, size = len(files), sum(size for _, size, _ in files)
    for _, its_size, path in sorted(files):
        if count < SPILL_FILES and size <= SPILL_BYTES:
            return
        with suppress(OSError):
            if not _is_written(path):
                os.unlink(path)  # noqa: PTH108
                count, size = count - 1, size - its_size


def _is_written(path: str) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return not _lock(fd)
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    """Whether nobody else has it locked; where files cannot be locked, nobody has."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
