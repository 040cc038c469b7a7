"""Paths as strings, made canonical by the one function that looks at the file system.

Called by all of the package. Never raises: what cannot be resolved is None, and nobody allows it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

PATH_CHARS = 4096
"""Linux's PATH_MAX: no longer path can be opened, and resolving one costs a call a component."""

Realpath = Callable[[str], str]


def canonical(path: str, base: str, realpath: Realpath) -> str | None:
    """`path`, seen from `base`, without links; None if there can be no such file."""
    joined = os.path.join(base, path)  # noqa: PTH118 -- Path would drop the `..` behind a link
    if len(joined) > PATH_CHARS or "\0" in joined:
        return None
    try:
        return realpath(joined)
    except (OSError, ValueError):
        return None


def within(path: str, directory: str) -> bool:
    """Component by component: `/work-old` is not within `/work`."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def inside(path: str, roots: Iterable[Path]) -> bool:
    return any(within(path, str(root)) for root in roots)
