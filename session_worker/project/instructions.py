"""What people wrote down for agents: AGENTS.md, or CLAUDE.md where there is none.

Read for the system prompt, and by `nested` for a directory that a tool first touches. General files
come first, all share one budget. Never follows an `@path` or a link out of the project.
"""

from __future__ import annotations

import re
from pathlib import Path

from session_worker.project.place import Place
from session_worker.project.reading import Refused, canonical, read_text
from session_worker.project.tagged import one_line, tagged
from session_worker.tools.truncate import size_text
from sidecar.protocol.bounds import KIB

INSTRUCTIONS_BYTES = 32 * KIB
"""Of all instructions of a session together (codex), and once more of those found on the way."""
INSTRUCTIONS_FILE_BYTES = 128 * KIB
"""Of one file read: comments cost reading, not budget."""
IMPORT_DEPTH = 5
"""Imports inside imports: whoever needs more has written a book."""
IMPORTS_MAX = 100
"""Looked up in all: a text full of `@names` must not cost a session its start."""
LEFT_OUT_SHOWN = 20
"""Files that are not included and named: enough to see why one is missing."""

NAMES = ("AGENTS.override.md", "AGENTS.md", "CLAUDE.md")
"""The first of a directory that says anything is the one that counts."""

_PARTS = re.compile(
    r"""^[ \t]*(?P<fence>`{3,}|~{3,})[^\n]*$.*?(?:^[ \t]*(?P=fence)[`~]*[ \t]*$|\Z)
      | `[^`\n]*`
      | <!--.*?(?:-->|\Z)
      | (?<![^\s(])@(?P<path>[^\s@`<>"'()]+)""",
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
"""Code, in which nothing means anything; a comment, which people do not see rendered; an import."""


class Instructions:
    """Collects files until the budget is used up, none twice; `render` gives what is new."""

    def __init__(self) -> None:
        self._budget = INSTRUCTIONS_BYTES
        self._imports = IMPORTS_MAX
        self._seen: set[Path] = set()
        self._found: list[str] = []
        self._left_out: list[str] = []

    def add(self, directory: Path, inside: Path | None) -> None:
        """Take the file of a directory, if it has one, and what that imports.

        `inside` is where links may lead. None is for the user's own, whose file may be a link to
        anywhere; what it imports is beside it.
        """
        for name in NAMES:
            path = directory / name
            if text := self._read(path, inside):
                source, within = ("project", inside) if inside else ("user", canonical(path).parent)
                self._take(path, text, source, within, depth=0)
                return

    def render(self) -> str:
        """What was added since the last call, as text for the model; empty if nothing was."""
        parts, self._found = self._found, []
        if self._left_out:
            more = ["…"] if len(self._left_out) > LEFT_OUT_SHOWN else []
            parts.append("Not included:\n" + "\n".join(self._left_out[:LEFT_OUT_SHOWN] + more))
            self._left_out = []
        return "\n\n".join(parts)

    def _take(self, path: Path, text: str, source: str, inside: Path, depth: int) -> None:
        path = canonical(path)
        if path in self._seen:
            return
        self._seen.add(path)
        text, imports = _stripped(text)
        if not self._budget:
            self._leave_out(path, f"the {size_text(INSTRUCTIONS_BYTES)} for instructions are full")
            return
        if text:
            text = self._within_budget(path, text)
            self._found.append(tagged("instructions", text, path=str(path), source=source))
        for named in imports:
            if not self._imports:
                return
            self._imports -= 1
            target = path.parent / named
            imported = self._read(target, inside)
            if imported and depth == IMPORT_DEPTH:
                self._leave_out(target, f"imports are nested more than {IMPORT_DEPTH} deep")
            elif imported:
                self._take(target, imported, source, inside, depth + 1)

    def _read(self, path: Path, inside: Path | None) -> str:
        try:
            return (read_text(path, inside, INSTRUCTIONS_FILE_BYTES) or "").strip()
        except Refused as error:
            self._leave_out(path, str(error))
            return ""

    def _within_budget(self, path: Path, text: str) -> str:
        raw = text.encode()
        kept = raw[: self._budget].decode(errors="ignore")
        self._budget -= min(len(raw), self._budget)
        if len(kept) == len(text):
            return text
        limit = size_text(INSTRUCTIONS_BYTES)
        return f"{kept}\n[cut here: over the {limit} for instructions; all of it is in {path}]"

    def _leave_out(self, path: Path, reason: str) -> None:
        self._left_out.append(one_line(f"{path}: {reason}"))


def find_instructions(place: Place) -> str:
    """The user's own, then the project's from its root down to the session's directory."""
    instructions = Instructions()
    instructions.add(place.config, None)
    for directory in way(place.root, place.cwd):
        instructions.add(directory, place.root)
    return instructions.render()


def way(root: Path, directory: Path) -> list[Path]:
    """The directories from `root` down to a canonical one inside it."""
    upwards = [directory, *directory.parents]
    return upwards[upwards.index(root) :: -1]


def _stripped(text: str) -> tuple[str, list[str]]:
    """Without comments, and what it imports in the order of its mention. Pure."""
    imports: list[str] = []

    def keep(part: re.Match[str]) -> str:
        if named := part["path"]:
            imports.append(named.rstrip(".,;:!?"))
        return "" if part[0].startswith("<!--") else part[0]

    stripped = re.sub(r"\n{3,}", "\n\n", _PARTS.sub(keep, text))
    return stripped.strip(), list(dict.fromkeys(imports))
