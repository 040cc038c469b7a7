"""What shell.py has found in a bash script, and where the script may be when it gets there."""

from __future__ import annotations

import os.path
from dataclasses import dataclass, field
from pathlib import Path

from session_worker.permissions.paths import Realpath, canonical
from session_worker.permissions.words import Word

DIRECTORIES = 8
"""Where a script may be after its `cd`s; with more of them it may be anywhere."""

_MOVERS = frozenset(
    {".", "alias", "builtin", "enable", "eval", "popd", "pushd", "shopt", "source", "trap"}
)
"""Builtins after which the directory, or what `cd` means, may be another."""

Directories = frozenset[str] | None
"""All that are possible; None is anywhere."""


@dataclass(frozen=True)
class Command:
    """One simple command. `core` is what is left of `words` without `timeout 5` and the like.

    `names` are the variables it sets. `hidden` is what a launcher such as `sudo` or `xargs` may
    run: it can be refused, it does not have to be allowed. `nested` came out of `bash -c '…'`.
    """

    text: str
    words: tuple[Word, ...]
    core: tuple[Word, ...]
    names: tuple[str, ...]
    cwds: Directories
    hidden: bool
    nested: bool


@dataclass(frozen=True)
class Access:
    """A file opened by a redirection; `family` is `read` or `edit`, `hidden` as of a command."""

    text: str
    family: str
    target: Word
    cwds: Directories
    hidden: bool


@dataclass
class Script:
    """`opaque` are the reasons why there may be more in it, `murky` texts nobody could read.

    `values` are variables set to something literal, `functions` the names the script defines.
    """

    commands: list[Command] = field(default_factory=list[Command])
    accesses: list[Access] = field(default_factory=list[Access])
    opaque: list[str] = field(default_factory=list[str])
    murky: list[str] = field(default_factory=list[str])
    values: dict[str, str] = field(default_factory=dict[str, str])
    functions: set[str] = field(default_factory=set[str])


def after(command: Command, home: Path, realpath: Realpath) -> Directories:
    """Where the script may be behind `command`.

    The old directories stay: a `cd` fails, runs in a subshell, or not at all.
    """
    if not command.words:
        return command.cwds
    program = command.words[0].text
    inner = command.core[0].text
    if program == "cd":
        return _after_cd(command, home, realpath)
    if program is None or inner is None or inner == "cd" or inner in _MOVERS:
        return None
    return command.cwds


def _after_cd(command: Command, home: Path, realpath: Realpath) -> Directories:
    """`cd ..` goes by the name it came by, other programs by the directory it is: try both."""
    texts = [word.text for word in command.words[1:]]
    targets = [text for text in texts if text not in ("-L", "-P", "-e", "--")] or [str(home)]
    target = targets[0]
    if command.cwds is None or len(targets) > 1 or target is None or target.startswith("-"):
        return None
    found = set(command.cwds)
    for cwd in command.cwds:
        physical = canonical(target, cwd, realpath)
        if physical is None:
            return None
        found |= {physical, os.path.normpath(os.path.join(cwd, target))}  # noqa: PTH118
    return frozenset(found) if len(found) <= DIRECTORIES else None
