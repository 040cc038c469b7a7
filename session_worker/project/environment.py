"""The facts about the place that a session begins with: one block of the system prompt.

Called once, at the first prompt: the block is frozen with the session, so it names the day and no
time, and says of what may change that it was so at the start.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from session_worker.project.git import checkout
from session_worker.project.place import Place
from session_worker.project.tagged import one_line
from session_worker.spec import SessionSpec

ENTRIES_SHOWN = 50
"""Of the session's directory (tools-and-ux.md §5)."""
ENTRIES_READ = 2_000
"""Beyond these the first ones of the alphabet may be missing: a directory can hold millions."""
NAME_CHARS = 100
"""Of one file name shown: the longest that there are, 255 bytes, are made by programs."""
PROGRAMS = ("git", "rg", "gh")


async def environment(spec: SessionSpec, place: Place) -> str:
    """Lines of `name: value`. Day only: no clock."""
    shell = spec.tool_env.get("SHELL")
    lines = [
        f"Working directory: {one_line(str(spec.cwd))}",
        *(f"Further directory: {one_line(str(root))}" for root in spec.permissions.additional_dirs),
        f"Git: {await _git(spec, place)}",
        f"System: {_system()}",
        f"Shell: bash; the person's own is {one_line(shell)}" if shell else "Shell: bash",
        f"Programs: {_programs(spec.tool_env.get('PATH', ''))}",
        f"Date: {datetime.now(UTC).date()}",
        f"Model: {spec.provider.model}",
        f"Permission mode: {spec.mode}",
        "Entries of the working directory at the start:",
        *_entries(place.cwd),
    ]
    return "\n".join(lines)


async def _git(spec: SessionSpec, place: Place) -> str:
    if not os.path.lexists(place.root / ".git"):
        return "none"
    found = await checkout(place.root, spec.tool_env)
    facts = [f"root {place.root}", f"branch {found.branch or 'unknown'}"]
    if found.changes is not None:
        facts.append(f"{found.changes} uncommitted changes at the start")
    return one_line(", ".join(facts))


def _system() -> str:
    name = f"{platform.system()} {platform.machine()}"
    try:
        return f"{name}, {platform.freedesktop_os_release()['PRETTY_NAME']}"
    except (OSError, KeyError):
        return name


def _programs(path: str) -> str:
    found = {name: shutil.which(name, path=path) is not None for name in PROGRAMS}
    return ", ".join(name if there else f"no {name}" for name, there in found.items())


def _entries(directory: Path) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            read = [
                entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "")
                for entry in islice(entries, ENTRIES_READ)
                if entry.name != ".git"
            ]
    except OSError as error:
        yield f"  [{error.strerror}]"
        return
    if not read:
        yield "  (none)"
    for name in sorted(read)[:ENTRIES_SHOWN]:
        yield f"  {one_line(name)[:NAME_CHARS]}"
    if len(read) > ENTRIES_SHOWN:
        more = len(read) - ENTRIES_SHOWN
        yield f"  … and {more}{' or more' if len(read) >= ENTRIES_READ - 1 else ''} others"
