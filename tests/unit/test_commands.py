"""What a person types with a slash: which prompts look like it, and what is offered."""

from __future__ import annotations

from pathlib import Path

import pytest

from session_worker.commands import offered, typed
from session_worker.project.frontmatter import split
from session_worker.project.skills import Skill
from sidecar.protocol.bounds import COMMAND_CHARS, COMMANDS_SHOWN


def skill(name: str, description: str = "does it", hint: str = "", command: bool = True) -> Skill:
    return Skill(name, description, "", Path("/x"), None, hint, command)


@pytest.mark.parametrize(
    ("prompt", "found"),
    [
        ("/shout", ("shout", "")),
        ("  /shout  it \n twice ", ("shout", "it \n twice")),
        ("/a-1 x", ("a-1", "x")),
        ("/usr/bin is full", None),
        ("/Shout", None),
        ("/", None),
        ("say /shout", None),
        ("//shout", None),
    ],
)
def test_a_command_is_a_slash_a_name_and_the_rest(
    prompt: str, found: tuple[str, str] | None
) -> None:
    assert typed(prompt) == found


def test_skills_for_people_are_offered_behind_compact_on_one_line_each() -> None:
    long = "word\n" * 500
    skills = [
        skill("shout", long, "[loud]"),
        skill("silent", command=False),
        skill("compact"),
        *(skill(f"s{number}") for number in range(COMMANDS_SHOWN)),
    ]
    first, shout, *rest = offered(skills)["availableCommands"]
    assert first["name"] == "compact" and "summary" in first["description"]
    assert shout["name"] == "shout" and shout["input"] == {"hint": "[loud]"}
    assert len(shout["description"]) == COMMAND_CHARS and "\n" not in shout["description"]
    assert {"silent", "compact"}.isdisjoint(listed["name"] for listed in rest)
    assert len(rest) == COMMANDS_SHOWN - 1


def test_what_a_skill_says_of_itself_as_a_command_may_be_wrong() -> None:
    values, _ = split('---\nname: x\nargument-hint: "[file]" [more]\nuser-invocable: false\n---\n')
    assert values == {"name": "x", "user-invocable": "false"}
