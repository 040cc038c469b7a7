"""Whom the kernel ends first when memory is short: tools, then workers; shim and daemon last.

Scores are raised above where they stand, which needs no privilege. Linux only; elsewhere, and
where the system forbids it, nothing happens.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

WORKER = 200
"""Of a worker above its shim."""
TOOL = 300
"""Of a tool above its worker."""
_MOST = 1000
"""Of the kernel's scale."""
_FILE = "/proc/self/oom_score_adj"


def own_score() -> int | None:
    """A descriptor of this process's score; None without one.

    Open it before memory is hidden: then the file belongs to root, and to the children as well.
    """
    try:
        return os.open(_FILE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None


@contextlib.contextmanager
def workers_first(own: int | None) -> Generator[None]:
    """What is forked inside has a worker's score, by inheritance: it could not raise its own."""
    if own is None:
        yield
        return
    before = os.pread(own, 16, 0)
    _write(own, int(before) + WORKER)
    try:
        yield
    finally:
        _write(own, int(before))


def shell_goes_first() -> str:
    """Code with which a shell raises itself, and so all it will start, above us.

    We could do it from here, but a shell's first child is faster: it kept our score (seen).
    """
    try:
        score = int(Path(_FILE).read_text()) + TOOL
    except OSError:
        return ""
    return f"{{ builtin echo {min(_MOST, score)} >{_FILE}; }} 2>/dev/null; "


def child_goes_first(pid: int) -> None:
    """Raise a child that a sandbox keeps from doing so itself; its first child may be faster."""
    with contextlib.suppress(OSError):
        score = int(Path(_FILE).read_text()) + TOOL
        Path(f"/proc/{pid}/oom_score_adj").write_text(str(min(_MOST, score)))


def _write(fd: int, score: int) -> None:
    with contextlib.suppress(OSError):
        os.pwrite(fd, str(min(_MOST, score)).encode(), 0)
