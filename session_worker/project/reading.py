"""Reading the text files that people leave for agents, without being led astray.

Called for instructions and skills. Never follows a link out of the directory that a file is meant
to be in, never blocks on a pipe, and never takes more than it was asked for.
"""

from __future__ import annotations

import codecs
import errno
import os
import stat
from pathlib import Path

from session_worker.tools.truncate import clean

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Refused(Exception):
    """Why a file that is there is not read."""


def canonical(path: Path) -> Path:
    """Without links, whether it exists or not; unlike `Path.resolve` it bears a loop of links."""
    return Path(os.path.realpath(path))


def read_text(path: Path, inside: Path | None, limit_bytes: int) -> str | None:
    """The first `limit_bytes` of a regular file as text; None if there is no such file.

    `inside` is a canonical directory; None stands for anywhere. Raises Refused.
    """
    found = canonical(path)
    try:
        if not stat.S_ISREG(found.lstat().st_mode):
            return None
        if inside is not None and not found.is_relative_to(inside):
            raise Refused(f"it leads out of {inside}")
        raw = _read(found, limit_bytes)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise Refused(error.strerror or str(error)) from error
    codec = "utf-16" if raw.startswith(_UTF_16) else "utf-8-sig"
    text = raw.decode(codec, errors="replace")
    if "\0" in text:
        raise Refused("it is not text")
    return clean(text)


def _read(path: Path, limit_bytes: int) -> bytes:
    fd = os.open(path, _FLAGS)
    with os.fdopen(fd, "rb") as file:
        link = Path(f"/proc/self/fd/{fd}")
        if link.is_symlink() and link.readlink() != path:
            raise Refused("it was moved or replaced while it was being opened")
        return file.read(limit_bytes)
