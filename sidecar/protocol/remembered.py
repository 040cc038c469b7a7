"""What people have allowed always in a project: `permissions.json` in the state directory.

Never in the project itself, where whoever writes files could allow itself things.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from sidecar.protocol.errors import SidecarError
from sidecar.protocol.files import exclusive, read_json, write_json

VERSION = 1


class Remembered:
    """Any number of processes may use it at once."""

    def __init__(self, state: Path) -> None:
        self._file = state / "permissions.json"

    def projects(self) -> Mapping[str, list[str]]:
        """The rules of each project, by its canonical root. Raises `SidecarError`."""
        try:
            return _checked(read_json(self._file))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise SidecarError(
                "forbidden",
                f"{self._file} is not usable, so nothing in it is allowed: {error}",
                f"look at it, and remove it: rm {self._file}",
            ) from error

    def add(self, root: Path, rules: Sequence[str]) -> None:
        """Raises `SidecarError`, OSError."""
        with exclusive(self._file):
            projects = dict(self.projects())
            projects[str(root)] = list(dict.fromkeys([*projects.get(str(root), []), *rules]))
            write_json(self._file, {"v": VERSION, "projects": projects})

    def forget(self, root: Path, rule: str | None = None) -> bool:
        """One rule, or all of the project; whether there was any. Raises `SidecarError`."""
        with exclusive(self._file):
            projects = dict(self.projects())
            rules = projects.pop(str(root), [])
            kept = [known for known in rules if rule is not None and known != rule]
            if len(kept) == len(rules):
                return False
            if kept:
                projects[str(root)] = kept
            write_json(self._file, {"v": VERSION, "projects": projects})
            return True


def _checked(stored: dict[str, Any]) -> dict[str, list[str]]:
    projects = stored.get("projects")
    if stored.get("v") != VERSION or not isinstance(projects, dict):
        raise ValueError("of another version, or damaged")
    for rules in cast("dict[str, Any]", projects).values():
        if not isinstance(rules, list) or not all(
            isinstance(rule, str) for rule in cast("list[Any]", rules)
        ):
            raise ValueError("damaged")
    return cast("dict[str, list[str]]", projects)
