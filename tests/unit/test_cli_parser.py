"""How a command line is read."""

import pytest

from client.cli.commands import ALIASES, COMMANDS
from client.cli.parser import parse
from client.errors import UsageError


@pytest.mark.parametrize(
    ("line", "words", "output"),
    [
        ("prompt s hello", ["hello"], "table"),
        ("-o json prompt s hello", ["hello"], "json"),
        ("prompt -o json s hello", ["hello"], "json"),
        ("prompt s -o json hello", ["hello"], "json"),
        ("prompt s hello -o json world", ["hello", "world"], "json"),
        ("-o jsonl prompt s hello -o json", ["hello"], "json"),
        ("prompt s -- -o json", ["-o", "json"], "table"),
        ("prompt s -", ["-"], "table"),
        ("prompt s", [], "table"),
    ],
)
def test_options_may_stand_anywhere(line: str, words: list[str], output: str) -> None:
    _, args = parse(line.split())
    assert (args.id, args.words, args.output) == ("s", words, output)


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_the_command_it_stands_for(alias: str) -> None:
    required = ["--all"] if alias in ("rm", "kill") else []
    assert parse([alias, *required])[0] is COMMANDS[ALIASES[alias]]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for line in ([*name.split(), "--help"], ["--help", *name.split()]):
        with pytest.raises(SystemExit) as left:
            parse(line)
        assert left.value.code == 0
        assert COMMANDS[name].summary in capsys.readouterr().out


@pytest.mark.parametrize("line", ["", "--help", "session", "session --help", "daemon -h"])
def test_help_lists_the_commands(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse(line.split())
    assert left.value.code == 0
    group = line.split()[0] if line[:1] not in ("", "-") else ""
    shown = capsys.readouterr().out
    assert all((f"  {name} " in shown) == name.startswith(group) for name in COMMANDS)


def test_a_slip_is_met_with_the_nearest_command() -> None:
    with pytest.raises(UsageError) as wrong:
        parse(["session", "creat"])
    assert wrong.value.hint == "sidecarctl session create"
