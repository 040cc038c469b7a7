"""Skills: what the model can look up when it needs it. Only their list is in the prompt.

Found when a session takes its first prompt; a body is read when the model asks for it. A skill
is text: nothing in its directory is ever started from here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from session_worker.project.frontmatter import split
from session_worker.project.instructions import way
from session_worker.project.place import Place
from session_worker.project.reading import Refused, canonical, read_text
from session_worker.project.tagged import one_line
from sidecar.protocol.bounds import KIB

SKILL_LIST_BYTES = 8 * KIB
"""Of the list in the prompt (tools-and-ux.md §5): about 20 skills with long descriptions."""
SKILL_FILE_BYTES = 128 * KIB
"""Of one SKILL.md: a body is meant to be below 5000 tokens, and results are cut at 50 KB anyway."""
SKILLS_PER_DIRECTORY = 200
"""Looked at: each costs the start of a session an open and a read."""
NAME_CHARS = 64
DESCRIPTION_CHARS = 1024
COMPATIBILITY_CHARS = 500
"""As the format has them (agentskills.io)."""

FILE = "SKILL.md"
_NAME = re.compile(r"[a-z0-9-]+")
_DIRECTORIES = (Path(".agents/skills"), Path(".claude/skills"))


@dataclass(frozen=True)
class Skill:
    """`inside` is where its file must be; None is for the user's own, who may link anywhere.
    `is_command`: people may run it by its name, and `hint` tells them what to write behind it."""

    name: str
    description: str
    compatibility: str
    file: Path
    inside: Path | None
    hint: str = ""
    is_command: bool = True

    def body(self) -> str:
        """As it is now. Raises Refused."""
        text = read_text(self.file, self.inside, SKILL_FILE_BYTES)
        if text is None:
            raise Refused(f"{self.file} is gone")
        try:
            return split(text)[1]
        except ValueError as error:
            raise Refused(f"{self.file}: {error}") from error


@dataclass
class Skills:
    """`problems` say of every skill that is there and not used, why."""

    by_name: dict[str, Skill] = field(default_factory=dict[str, Skill])
    problems: list[str] = field(default_factory=list[str])


def find_skills(place: Place) -> Skills:
    """The user's own first, then the project's from the session's directory up to its root.

    The first of a name counts: a project must not replace what its user wrote.
    """
    skills = Skills()
    seen: set[Path] = set()
    for directory, inside in _directories(place):
        for file in _files(directory):
            real = canonical(file)
            if real in seen:
                continue  # .claude/skills is often a link to .agents/skills
            seen.add(real)
            try:
                skill = _load(file, inside)
            except (Refused, ValueError) as error:
                skills.problems.append(one_line(f"{file}: {error}"))
                continue
            if skill is None:
                continue
            if other := skills.by_name.get(skill.name):
                skills.problems.append(one_line(f"{file}: {other.file} has the same name"))
            else:
                skills.by_name[skill.name] = skill
    return skills


def skill_list(skills: Mapping[str, Skill]) -> str:
    """A line for each, as many as fit; empty if there are none."""
    lines: list[str] = []
    left = SKILL_LIST_BYTES
    for skill in skills.values():
        line = f"- {skill.name}: {one_line(skill.description)}"
        left -= len(line.encode()) + 1
        if left < 0:
            lines.append(f"- and {len(skills) - len(lines)} more, for which there is no room here")
            break
        lines.append(line)
    return "\n".join(lines)


def _directories(place: Place) -> Iterator[tuple[Path, Path | None]]:
    yield place.config / "skills", None
    if place.home:
        yield from ((place.home / each, None) for each in _DIRECTORIES)
    for directory in reversed(way(place.root, place.cwd)):
        yield from ((directory / each, place.root) for each in _DIRECTORIES)


def _files(directory: Path) -> Sequence[Path]:
    """Where the skills of a directory would be, in an order that is always the same."""
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in islice(entries, SKILLS_PER_DIRECTORY))
    except OSError:
        return ()
    return [directory / name / FILE for name in names if not name.startswith(".")]


def _load(file: Path, inside: Path | None) -> Skill | None:
    """None if there is no such file. Raises Refused, ValueError."""
    text = read_text(file, inside, SKILL_FILE_BYTES)
    if text is None:
        return None
    values, _ = split(text)
    name, description = values.get("name", ""), values.get("description", "")
    compatibility = values.get("compatibility", "")
    if not _NAME.fullmatch(name) or len(name) > NAME_CHARS:
        raise ValueError(f"name must be 1 to {NAME_CHARS} of a-z, 0-9 and -, not {name!r}")
    if name != file.parent.name:
        raise ValueError(f"name is {name!r}, but its directory is {file.parent.name!r}")
    if not 0 < len(description) <= DESCRIPTION_CHARS:
        raise ValueError(
            f"description must be 1 to {DESCRIPTION_CHARS} characters, not {len(description)}"
        )
    if len(compatibility) > COMPATIBILITY_CHARS:
        raise ValueError(f"compatibility must be at most {COMPATIBILITY_CHARS} characters")
    is_command = values.get("user-invocable", "").lower() != "false"
    hint = values.get("argument-hint", "")
    return Skill(name, description, compatibility, file, inside, hint, is_command)
