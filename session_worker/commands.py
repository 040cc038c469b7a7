"""What a person can type with a slash before it: `/compact`, and the session's skills. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Any

from session_worker.project.skills import Skill
from session_worker.project.tagged import one_line
from sidecar.protocol.bounds import COMMAND_CHARS, COMMANDS_SHOWN

COMPACT = "compact"

Update = dict[str, Any]

_COMMAND = re.compile(r"\s*/([a-z0-9-]+)(?:\s+(.*))?", re.DOTALL)
_COMPACT: Update = {
    "name": COMPACT,
    "description": "Replace the older part of the conversation with a summary",
    "input": {"hint": "what the summary should pay attention to"},
}


def typed(prompt: str) -> tuple[str, str] | None:
    """Name and arguments of a prompt that looks like a command; whether there is such a one is
    another question."""
    found = _COMMAND.fullmatch(prompt)
    return found and (found[1], (found[2] or "").strip())


def offered(skills: Iterable[Skill]) -> Update:
    """An `available_commands_update`, with those of the skills that are for people."""
    wanted = (skill for skill in skills if skill.is_command and skill.name != COMPACT)
    listed = [_listed(skill) for skill in islice(wanted, COMMANDS_SHOWN)]
    return {
        "sessionUpdate": "available_commands_update",
        "availableCommands": [_COMPACT, *listed],
    }


def _listed(skill: Skill) -> Update:
    hint = one_line(skill.hint)[:COMMAND_CHARS] or "what the skill is to work on"
    description = one_line(skill.description)[:COMMAND_CHARS]
    return {"name": skill.name, "description": description, "input": {"hint": hint}}
