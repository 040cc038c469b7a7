"""What of a repository a sandbox must know: what runs later, and where a linked worktree writes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

_RUN_LATER = ("hooks", "config")
"""What the user's own git runs, or takes the names of programs from."""
_GITFILE_BYTES = 4096
"""Of a file that holds one path."""


def pinned(git: Path) -> Iterator[tuple[Path, bool]]:
    """What of a git directory, or of the file that stands for one, must stay where it is, and
    whether it may be written. No links: a command may have put one there."""
    found = file_type(git)
    if found not in (stat.S_IFDIR, stat.S_IFREG):
        return
    yield git, found == stat.S_IFDIR
    for path in (git / name for name in _RUN_LATER):
        if file_type(path) in (stat.S_IFDIR, stat.S_IFREG):
            yield path, False


def file_type(path: Path) -> int:
    """Of the path itself, not of what a link leads to; 0 for nothing that we could see."""
    try:
        return stat.S_IFMT(path.lstat().st_mode)
    except OSError:
        return 0


def repository_of_worktree(root: Path) -> Path | None:
    """The git directory that `root`, made by `git worktree add`, commits to.

    Believed only if it names `root` in turn: `root/.git` is a file that a command may have
    written, what is outside is not.
    """
    link = root / ".git"
    try:
        entry = _path_in(link, "gitdir:")  # REPOSITORY/worktrees/NAME
        named = _path_in(entry / "gitdir")
    except (OSError, ValueError):
        return None
    repository = entry.parent.parent
    if named != link or entry.parent.name != "worktrees" or not (repository / "objects").is_dir():
        return None
    return repository


def _path_in(file: Path, label: str = "") -> Path:
    """The canonical path that `file` holds behind `label`. Raises OSError, ValueError."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        text = os.fsdecode(os.read(descriptor, _GITFILE_BYTES))
    finally:
        os.close(descriptor)
    if not text.startswith(label):
        raise ValueError(file)
    return (file.parent / text.removeprefix(label).strip()).resolve()
