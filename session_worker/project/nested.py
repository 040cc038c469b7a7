"""Instructions of directories that a session comes to on its way: told once, with a result.

So the system prompt stays as it is. A new worker tells them once more; a summary may have lost
them anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from session_worker.project.instructions import Instructions, way
from session_worker.project.place import Place
from session_worker.project.reading import canonical


class NestedInstructions:
    """What directories below, or beside, the session's have to say, once: when one is touched."""

    def __init__(self, place: Place, extra_roots: Sequence[Path] = ()) -> None:
        self._roots = (place.root, *extra_roots)
        self._known = set(way(place.root, place.cwd))
        self._instructions = Instructions()

    def for_path(self, path: Path) -> str:
        """To append to the result of a call that succeeded and named `path`, an absolute one;
        empty if nothing is new."""
        found = canonical(path)
        directory = found if found.is_dir() else found.parent
        root = next((root for root in self._roots if directory.is_relative_to(root)), None)
        for each in [] if root is None else way(root, directory):
            if each not in self._known:
                self._known.add(each)
                self._instructions.add(each, root)
        text = self._instructions.render()
        return f"Instructions for work in what this call touched:\n\n{text}" if text else ""
