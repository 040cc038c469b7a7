"""Where file tools may reach: inside the session's directories, and nowhere by a detour.

Called by every file tool, and by the permission rules for the path that a call really means. A
path is first made canonical (`canonical`, `locate`), then opened component by component without
following any link, and the descriptor is looked at once more: what was judged is what is opened,
whoever swaps directories meanwhile. Never resolves the roots again: a root that somebody replaced
by a link is not a root any more.
Not told apart: a hard link inside to a file outside is that file. Commands are not confined.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import unicodedata
from collections.abc import Generator
from pathlib import Path

from session_worker.tools.process import UMASK
from session_worker.tools.spec import ToolContext
from session_worker.tools.truncate import json_safe

PATH_BYTES = 4096
"""Longest path taken from a model: what the kernel takes, zero byte included."""
LINKS_MAX = 40
"""Symbolic links followed for one path, as in the kernel."""
NAME_CHARS = 300
"""Of a path in a message: the model knows what it wrote."""

# O_PATH needs no read permission: /home is often 0711.
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SAFELY = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Refused(Exception):
    """Why a call does nothing; the text is for the model."""


class NotFound(Refused):
    """There is no such file or directory, or none on the way to it."""


def locate(path: str, ctx: ToolContext) -> Path:
    """The canonical path of what the model named; it need not exist.

    It is inside the session's directories, or granted for this call. Raises Refused.
    """
    found = canonical(path, ctx)
    if not is_inside(found, ctx):
        where = ", ".join(shown(root) for root in ctx.roots)
        raise Refused(f"{shown(found)} is outside the session's directories ({where})")
    return found


def canonical(path: str, ctx: ToolContext) -> Path:
    """The absolute path without links that `path` leads to, wherever that is.

    Relative to the session's directory; `~` is the commands' home. What does not exist is kept as
    it was written. Raises Refused for what no kernel would take: loops, `..` behind a file.
    """
    if problem := _unusable(path):
        raise Refused(problem)
    named = path
    if path == "~" or path.startswith("~/"):
        path = ctx.env.get("HOME", "~") + path[1:]
    path = os.path.join(ctx.root, os.path.expanduser(path))  # noqa: PTH111, PTH118 -- keep a final /
    with explained(shown(named)):
        return _resolved(path)


def is_inside(path: Path, ctx: ToolContext) -> bool:
    """Whether a canonical path is in one of the roots, or granted exactly as it is."""
    if not path.is_absolute() or ".." in path.parts:
        return False
    return path in ctx.granted or any(path.is_relative_to(root) for root in ctx.roots)


def open_file(path: Path, ctx: ToolContext, flags: int) -> int:
    """A descriptor of a canonical path: of a regular file, or with O_DIRECTORY of a directory.

    Never blocks on a pipe or a device, never wakes one up, and never creates: no O_CREAT, no
    O_TRUNC. Raises Refused, NotFound if it does not exist.
    """
    name, label = path.name or ".", shown(path, ctx)
    with open_parent(path, ctx) as parent, explained(label):
        _check_kind(label, os.stat(name, dir_fd=parent, follow_symlinks=False), flags)
        fd = os.open(name, flags | _SAFELY, dir_fd=parent)
        try:
            _check_kind(label, os.fstat(fd), flags)
            _check_place(path, label, fd)
        except BaseException:
            os.close(fd)
            raise
        return fd


@contextlib.contextmanager
def open_parent(path: Path, ctx: ToolContext, *, make: bool = False) -> Generator[int]:
    """A descriptor of the directory that a canonical path is in, for use as `dir_fd` only.

    With `make` it is created if it is missing, and those above it. Raises Refused.
    """
    if not is_inside(path, ctx):
        raise Refused(f"{shown(path)} is outside the session's directories")
    label = shown(path.parent, ctx)
    with explained(label):
        fd = _walk(path.parent, make=make)
    try:
        with explained(label):
            _check_place(path.parent, label, fd)
        yield fd
    finally:
        os.close(fd)


def shown(path: Path | str, ctx: ToolContext | None = None) -> str:
    """A path in a message: relative to the session's directory where it can be, on one line."""
    if ctx and isinstance(path, Path) and path != ctx.root and path.is_relative_to(ctx.root):
        path = path.relative_to(ctx.root)
    text = _CONTROLS.sub(lambda found: repr(found[0])[1:-1], json_safe(str(path)))
    return text if len(text) <= NAME_CHARS else text[:NAME_CHARS] + "…"


def _unusable(path: str) -> str | None:
    """Why a path cannot be one, said to the model."""
    if not path:
        return "the path is empty"
    if "\0" in path:
        return "the path contains a NUL character"
    try:
        size = len(path.encode())
    except UnicodeEncodeError as error:
        return f"the path is not valid Unicode at character {error.start}: {error.reason}"
    return f"the path is too long ({size} bytes)" if size >= PATH_BYTES else None


def _resolved(path: str) -> Path:
    """What the kernel would find, component by component; raises OSError where it would."""
    todo = path.split("/")[::-1]
    found, mode, links = "/", stat.S_IFDIR, 0
    while todo:
        name = todo.pop()
        if not stat.S_ISDIR(mode):  # even a final slash asks for a directory
            raise _os_error(errno.ENOTDIR)
        if name in ("", "."):
            continue
        if name == "..":
            found = os.path.dirname(found)  # noqa: PTH120 -- `found` has no links
            continue
        entry = _entry(found, name)
        if entry is None:
            rest = [name, *reversed(todo)]
            if ".." in rest or rest[-1] in ("", "."):
                raise _os_error(errno.ENOENT)
            return Path(found, *rest)
        there, mode = entry
        if not stat.S_ISLNK(mode):
            found = there
            continue
        links += 1
        if links > LINKS_MAX:
            raise _os_error(errno.ELOOP)
        target = os.readlink(there)  # noqa: PTH115
        todo += target.split("/")[::-1]
        found, mode = "/" if target.startswith("/") else found, stat.S_IFDIR
    return Path(found)


def _entry(directory: str, name: str) -> tuple[str, int] | None:
    """Path and mode of what is called so, or as another system would have spelled the same letters:
    models compose accents, macOS takes them apart."""
    composed, apart = unicodedata.normalize("NFC", name), unicodedata.normalize("NFD", name)
    for form in dict.fromkeys((name, composed, apart)):
        there = os.path.join(directory, form)  # noqa: PTH118
        with contextlib.suppress(FileNotFoundError):
            return there, os.lstat(there).st_mode
    return None


def _walk(directory: Path, *, make: bool) -> int:
    fd = os.open("/", _DIRECTORY)
    try:
        for name in directory.parts[1:]:
            inner = _enter(fd, name, make=make)
            os.close(fd)
            fd = inner
    except BaseException:
        os.close(fd)
        raise
    return fd


def _enter(fd: int, name: str, *, make: bool) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=fd)
    except FileNotFoundError:
        if not make:
            raise
    os.mkdir(name, dir_fd=fd)
    made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _SAFELY, dir_fd=fd)
    try:
        os.fchmod(made, stat.S_IMODE(os.fstat(made).st_mode) | (0o777 & ~UMASK))
    except BaseException:
        os.close(made)
        raise
    return made


def _check_kind(label: str, found: os.stat_result, flags: int) -> None:
    wanted = stat.S_IFDIR if flags & os.O_DIRECTORY else stat.S_IFREG
    kind = stat.S_IFMT(found.st_mode)
    if kind != wanted:
        what = "a directory" if wanted == stat.S_IFDIR else "a regular file"
        raise Refused(f"{label} is {_KINDS.get(kind, 'a file')}, not {what}")


def _check_place(path: Path, label: str, fd: int) -> None:
    """Whether the descriptor is of what is at `path` now: a directory on the way may move."""
    try:
        is_there = os.readlink(f"/proc/self/fd/{fd}") == str(path)  # noqa: PTH115
    except OSError:  # no /proc
        is_there = os.path.realpath(path) == str(path) and os.path.samestat(
            os.fstat(fd), path.lstat()
        )
    if not is_there:
        raise Refused(f"{label} was moved or replaced while it was being opened")


@contextlib.contextmanager
def explained(label: str) -> Generator[None]:
    """OSError as Refused."""
    try:
        yield
    except FileNotFoundError:
        raise NotFound(f"there is no {label}") from None
    except OSError as error:
        raise Refused(f"{label}: {error.strerror}") from None


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
