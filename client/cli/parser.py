"""argv to a command and its arguments.

Two steps: which command, then its own parser. So global options stand anywhere, options may come
between ID and TEXT (argparse's subparsers refuse that before 3.13), and one parser is built, not
twenty.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

from client.cli.commands import ALIASES, COMMANDS
from client.cli.context import Command
from client.errors import UsageError

PROG = "sidecarctl"
_GLOBALS = {
    "socket": None,
    "output": None,
    "no_start": False,
    "timeout": None,
    "color": "auto",
    "no_input": False,
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"{self.prog} --help")


def parse(argv: list[str]) -> tuple[Command, argparse.Namespace]:
    """The command that `argv` asks for. Raises `UsageError`, and SystemExit after `--help`."""
    top = _parser(PROG, "", add_help=False)
    top.add_argument("-h", "--help", action="store_true")
    top.add_argument("command_line", nargs=argparse.REMAINDER)
    args = top.parse_args(argv, argparse.Namespace(**_GLOBALS))
    words: list[str] = args.command_line
    name = _command_name(words, help_asked=args.help or not words)
    command = COMMANDS[name]
    parser = _parser(f"{PROG} {name}", command.summary)
    command.arguments(parser)
    rest = words[1 if words[0] in ALIASES else len(name.split()) :]
    parser.parse_intermixed_args(["--help"] if args.help else rest, args)
    args.output = args.output or command.formats[0]
    if args.output not in command.formats:
        raise UsageError(
            f"{name} knows no output format {args.output!r}", f"-o {'|'.join(command.formats)}"
        )
    return command, args


def _parser(prog: str, summary: str, add_help: bool = True) -> argparse.ArgumentParser:
    parser = _Parser(prog=prog, description=summary, add_help=add_help, allow_abbrev=False)
    group = parser.add_argument_group("options of every command")
    add = partial(group.add_argument, default=argparse.SUPPRESS)
    add("--socket", type=Path, metavar="PATH", help="control socket")
    add("-o", "--output", metavar="FORMAT", help="table, json, jsonl or name")
    add("--no-start", action="store_true", help="never start a daemon")
    add("--timeout", type=seconds, metavar="S", help="give up after S seconds")
    add("--color", choices=("auto", "always", "never"))
    add("--no-input", action="store_true", help="ask nothing: what needs a permission is rejected")
    return parser


def seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


def _command_name(words: list[str], *, help_asked: bool) -> str:
    for name in (" ".join(words[:2]), " ".join(words[:1])):
        if ALIASES.get(name, name) in COMMANDS:
            return ALIASES.get(name, name)
    given = words[0] if words else ""
    group = [name for name in COMMANDS if name.startswith(f"{given} ")]
    asked_in_group = not words[1:] or words[1] in ("-h", "--help")
    if help_asked or (group and asked_in_group):
        sys.stdout.write(_overview(group or list(COMMANDS)))
        raise SystemExit(0)
    import difflib  # for those who err

    wrong = " ".join(words[: 2 if group else 1])
    near = difflib.get_close_matches(wrong, [*COMMANDS, *ALIASES], 1)
    raise UsageError(f"there is no command {wrong!r}", f"{PROG} {near[0] if near else '--help'}")


def _overview(names: list[str]) -> str:
    width = max(map(len, names))
    lines = [f"  {name:{width}}  {COMMANDS[name].summary}" for name in names]
    aliases = ", ".join(f"{alias} = {name}" for alias, name in ALIASES.items())
    return (
        f"Usage: {PROG} COMMAND [options]\n\nCommands:\n"
        + "\n".join(lines)
        + f"\n\nShort: {aliases}\nOptions of a command: {PROG} COMMAND --help\n"
    )
