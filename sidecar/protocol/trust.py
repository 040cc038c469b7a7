"""Which projects the user trusts: what one configures counts only then (peers.md §D 10).

`sidecarctl trust` writes the store, a worker asks it before it obeys anything that a workspace
configures: allow rules, hooks, MCP servers. Trust is for one canonical directory and nothing else:
neither what it contains nor what contains it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, cast

from sidecar.protocol.errors import SidecarError
from sidecar.protocol.events import now_iso
from sidecar.protocol.files import exclusive, read_json, write_json

VERSION = 1

_logger = logging.getLogger(__name__)


def project_root(directory: Path) -> Path:
    """The project that `directory` is in, canonical: the git root, else the directory itself.

    A `.git` that belongs to somebody else makes no project: one in /tmp would govern everybody's
    directories below it (git's CVE-2022-24765).
    """
    start = Path(os.path.realpath(directory))
    owners = {0, os.geteuid(), _owner(start)}
    for candidate in (start, *start.parents):
        if (owner := _owner(candidate / ".git")) is not None:
            return candidate if owner in owners else start
    return start


class TrustStore:
    """The file `trust.json` in the state directory. Any number of processes may use it at once."""

    def __init__(self, state: Path) -> None:
        self._file = state / "trust.json"

    def is_trusted(self, directory: Path) -> bool:
        """Whether the project of `directory` is trusted; not if the store cannot be read."""
        try:
            return str(project_root(directory)) in self.trusted()
        except SidecarError as error:
            _logger.warning("no project is trusted: %s", error)
            return False

    def trusted(self) -> Mapping[str, str]:
        """When each directory was trusted, by path. Raises `SidecarError` for a broken store."""
        try:
            found = self._file.lstat()
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                raise ValueError("not a file of ours")
            if found.st_mode & 0o022:
                raise ValueError("others may write it")
            return _checked(read_json(self._file))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise SidecarError(
                "forbidden",
                f"{self._file} is not usable, so nothing is trusted: {error}",
                f"look at it, remove it, and trust your projects again: rm {self._file}",
            ) from error

    def trust(self, directory: Path) -> Path:
        """Trust the project of `directory`; which that is. Raises `SidecarError`."""
        root = project_root(directory)
        with self._changing() as trusted:
            trusted.setdefault(str(root), now_iso())
        return root

    def untrust(self, directory: Path) -> Path | None:
        """Forget the directory itself, which may be gone, or else its project. None if neither
        was trusted. Raises `SidecarError`."""
        with self._changing() as trusted:
            for path in (Path(os.path.realpath(directory)), project_root(directory)):
                if trusted.pop(str(path), None) is not None:
                    return path
        return None

    @contextlib.contextmanager
    def _changing(self) -> Generator[dict[str, str]]:
        """What is trusted, to be changed; nobody else changes it meanwhile."""
        with exclusive(self._file):
            before = self.trusted()
            trusted = dict(before)
            yield trusted
            if trusted != before:
                write_json(self._file, {"v": VERSION, "trusted": trusted})


def _checked(stored: dict[str, Any]) -> dict[str, str]:
    trusted = stored.get("trusted")
    if stored.get("v") != VERSION or not isinstance(trusted, dict):
        raise ValueError("of another version, or damaged")
    if not all(isinstance(at, str) for at in cast("dict[str, Any]", trusted).values()):
        raise ValueError("damaged")
    return cast("dict[str, str]", trusted)


def _owner(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except OSError:
        return None
