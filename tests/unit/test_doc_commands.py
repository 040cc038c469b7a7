"""Every `sidecarctl …` of every page is a command line that `sidecarctl` takes."""

from __future__ import annotations

import re
import shlex
from itertools import product

import pytest

from client.cli.parser import parse
from client.errors import UsageError
from tests.support.docs import PAGES, commands, mentions

_MISSING = re.compile(r"arguments are required: (.*)")
_PART = re.compile(r"\[[^\]]*\]|\S+")


def refusal(line: str) -> str:
    """What is wrong with it, if anything; help and overviews are fine."""
    try:
        parse(shlex.split(line)[1:])
    except SystemExit as left:
        return "" if left.code == 0 else "it ends otherwise"
    except UsageError as error:
        return str(error)
    return ""


def as_far_as_it_goes(line: str) -> str:
    """The same of a command that is only named: what it requires is put in."""
    missing = _MISSING.search(wrong := refusal(line))
    return refusal(line + " x" * len(missing[1].split(", "))) if missing else wrong


def unread(synopsis: str) -> set[tuple[int, str]]:
    """The parts of `answer ID [REQ] once|reject` that stand in no reading that is a command: each
    choice has to, and what is optional both with and without it."""
    parts = [
        ("", part[1:-1]) if part[0] == "[" else tuple(re.split(r"\\?\|", part))
        for part in _PART.findall(synopsis)
    ]
    read = [line for line in product(*parts) if not as_far_as_it_goes(" ".join(line))]
    choices = {(at, choice) for at, part in enumerate(parts) for choice in part}
    return choices - {choice for line in read for choice in enumerate(line)}


@pytest.mark.parametrize("page", PAGES)
def test_every_command_in_a_shell_block_is_one(page: str) -> None:
    for line in commands(page):
        assert not refusal(re.sub(r'"?\$\w+"?', "1", line)), line


@pytest.mark.parametrize("page", PAGES)
def test_every_command_in_the_prose_is_one(page: str) -> None:
    for mention in mentions(page):
        assert not unread(mention), mention


@pytest.mark.parametrize(
    "line",
    ["sidecarctl sesion ls", "sidecarctl run --no-such-flag", "sidecarctl mcp ls|tst ID [SERVER]"],
)
def test_what_does_not_exist_is_noticed(line: str) -> None:
    assert unread(line)


def test_commands_are_found_in_substitutions_too() -> None:
    assert "sidecarctl session create --name work --tcp -o json" in commands("docs/clients.md")
