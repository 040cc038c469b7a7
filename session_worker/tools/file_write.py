"""Puts new content into a file, wholly or not at all.

Called by `write_file` and `edit_file`, in a thread. Never leaves a temporary file behind unless the
process itself is killed, never writes over what the model has not seen, never changes mode or owner
where it can help it. Access lists and other extended attributes are not carried over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from session_worker.tools.confine import Refused, explained, open_file, open_parent, shown
from session_worker.tools.file_text import decode, is_binary
from session_worker.tools.process import UMASK
from session_worker.tools.spec import FileChange, ToolContext
from session_worker.tools.truncate import json_safe
from sidecar.protocol.bounds import MIB

CHANGE_BYTES = 1 * MIB
"""Of old and of new content kept for clients to show; nobody reads a larger diff."""
CANCEL_S = 1.0
"""Given to a write that is cancelled, so that it is known whether it was done."""

IsCancelled = Callable[[], bool]
T = TypeVar("T")


async def in_thread(work: Callable[[IsCancelled], T]) -> T:
    """The result of `work`, which runs in a thread and asks before its first effect.

    A cancelled call whose work was done all the same returns its result, so that everybody knows.
    If a cancellation leaves, nothing was written, or its text says that it may have been.
    """
    cancelled = threading.Event()
    running = asyncio.ensure_future(asyncio.to_thread(work, cancelled.is_set))
    running.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.wait([running])
    except asyncio.CancelledError:
        cancelled.set()
        await asyncio.wait([running], timeout=CANCEL_S)
        if not running.done():
            raise asyncio.CancelledError("the file may or may not be written") from None
        if running.cancelled() or running.exception():
            raise
    return running.result()


def save(path: Path, data: bytes, ctx: ToolContext, is_cancelled: IsCancelled) -> None:
    """Make `data` the content of the canonical `path`; the model has seen it from then on.

    Its directory is made if there is none. Raises Refused, and then nothing has changed, but for
    a file with several hard links: it is written in place, and the refusal says if it was begun.
    """
    label = shown(path, ctx)

    def check_cancelled() -> None:
        if is_cancelled():
            raise Refused(f"{label} was not written: the call was cancelled")

    check_cancelled()
    with open_parent(path, ctx, make=True) as parent, explained(label):
        old = _replaceable(path, parent, ctx)

        def may_begin() -> None:
            _replaceable(path, parent, ctx)
            check_cancelled()

        if old and old.st_nlink > 1:
            found = _written_in_place(path, data, ctx, may_begin)
        else:
            found = _replaced(path.name, parent, data, old, may_begin)
    ctx.seen.note(path, found)


def file_change(path: Path, old: bytes | None, new: bytes) -> FileChange | None:
    """What clients are shown; None if it is too large or not text."""
    before = None if old is None else _change_text(old)
    after = _change_text(new)
    if after is None or (old is not None and before is None):
        return None
    return FileChange(path, before, after)


def _change_text(raw: bytes) -> str | None:
    if len(raw) > CHANGE_BYTES or is_binary(raw):
        return None
    with contextlib.suppress(UnicodeDecodeError):
        return json_safe(decode(raw).text)
    return None


def _replaceable(path: Path, parent: int, ctx: ToolContext) -> os.stat_result | None:
    return check_replaceable(path, parent, ctx, lambda found: ctx.seen.problem(path, found))


def check_replaceable(
    path: Path, parent: int, ctx: ToolContext, problem_of: Callable[[os.stat_result], str | None]
) -> os.stat_result | None:
    """What is there now, None if nothing; raises Refused if it must stay, as `problem_of` has it
    or for its kind or mode."""
    label = shown(path, ctx)
    try:
        found = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        what = "a directory" if stat.S_ISDIR(found.st_mode) else "not a regular file"
        raise Refused(f"{label} is {what}")
    if problem := problem_of(found):
        raise Refused(f"{label} was not changed: {problem}")
    if not found.st_mode & 0o222:  # root could, and nobody who protects a file means "but root"
        raise Refused(f"{label} was not changed: it is read-only (mode {found.st_mode & 0o777:o})")
    return found


def _replaced(
    name: str,
    parent: int,
    data: bytes,
    old: os.stat_result | None,
    may_begin: Callable[[], None],
) -> os.stat_result:
    temporary = f".sidecar-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o600, dir_fd=parent)
    try:
        _write_all(fd, data)
        _give_mode(fd, old)
        os.fsync(fd)
        may_begin()
        os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        found = os.fstat(fd)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise
    finally:
        os.close(fd)
    with contextlib.suppress(OSError):  # some file systems cannot
        _sync_directory(parent)
    return found


def _written_in_place(
    path: Path, data: bytes, ctx: ToolContext, may_begin: Callable[[], None]
) -> os.stat_result:
    """A new file would leave the other names with the old content."""
    fd = open_file(path, ctx, os.O_WRONLY)
    try:
        may_begin()
        try:
            _write_all(fd, data)
            os.ftruncate(fd, len(data))
            os.fsync(fd)
        except OSError as error:
            raise Refused(
                f"{shown(path, ctx)}: {error.strerror}; it has several hard links, was written in "
                "place, and may now be half old, half new"
            ) from None
        return os.fstat(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _give_mode(fd: int, old: os.stat_result | None) -> None:
    """Owner and mode of the old file; those of what a command makes for a new one."""
    if old is None:
        os.fchmod(fd, 0o666 & ~UMASK)
        return
    for uid, gid in ((-1, old.st_gid), (old.st_uid, -1)):
        with contextlib.suppress(PermissionError):
            os.fchown(fd, uid, gid)
    now = os.fstat(fd)
    is_same = (now.st_uid, now.st_gid) == (old.st_uid, old.st_gid)
    os.fchmod(fd, old.st_mode & (0o7777 if is_same else 0o777))  # no setuid for another owner


def _sync_directory(parent: int) -> None:
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=parent)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
