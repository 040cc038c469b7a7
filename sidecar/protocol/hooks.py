"""What hooks are: programs a person wants run at certain moments of a session.

The daemon reads them from configuration files, before there is a session; the worker runs them.
Nothing here runs anything, and only `locate` looks at the file system.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

HOOK_TIMEOUT_DEFAULT_S = 30.0
HOOK_TIMEOUT_MAX_S = 600.0
"""As long as a command of the model may take: somebody waits for every hook."""
HOOKS_MAX = 64
"""Hooks of one configuration file: those of an event run one after another."""
HOOK_TITLE_CHARS = 120
"""Of a hook's command, shown to people."""

EVENTS: Mapping[str, str | None] = {
    "PreToolUse": "the tool",
    "PostToolUse": "the tool",
    "PostToolUseFailure": "the tool",
    "UserPromptSubmit": None,
    "SessionStart": "startup or resume",
    "SessionEnd": "the reason",
    "PreCompact": "auto or manual",
    "PostCompact": "auto or manual",
    "Stop": None,
}
"""Each event, and what its matchers are compared with."""
PREVENTABLE = frozenset({"PreToolUse", "UserPromptSubmit"})
"""Events where a deny stops something. Elsewhere it is a word to the model about what has been,
and no reason to hear it from a hook that is broken."""

_SCRIPT = re.compile(r"[^\s:=*?;|&]+\.(?:py|pyz|sh|bash|zsh|js|mjs|cjs|ts|rb|pl|php|lua)")
_PATH = re.compile(r"(?:~|\.{0,2})/[\w./@+-]+")
_INTERPRETER = re.compile(r"(?:(?:ba|da|k|z)?sh|python|pypy|node|ruby|perl|php|lua)[\d.]*")
_CODE_FOLLOWS = re.compile(r"-\w*c|-m")


@dataclass(frozen=True)
class Hook:
    """`command` is words, never a shell's line; `source` says whose configuration it is from.

    `matcher` is patterns with `|` between them; empty or `*` is everything. `on_error` is what a
    hook counts as that cannot be run, times out or makes no sense: `allow` is as if it were not
    there, never a vote.
    """

    event: str
    command: tuple[str, ...]
    matcher: str = ""
    timeout_s: float = HOOK_TIMEOUT_DEFAULT_S
    on_error: str = "allow"
    source: str = ""

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Hook:
        """From `dataclasses.asdict`, sent as JSON."""
        rest = dict(wire)
        return cls(command=tuple(rest.pop("command")), **rest)

    @property
    def title(self) -> str:
        """For people and the model."""
        command = shlex.join(self.command)
        if len(command) > HOOK_TITLE_CHARS:
            command = command[:HOOK_TITLE_CHARS] + "…"
        return f"{self.event} hook `{command}`" + (f" ({self.source})" if self.source else "")


def parse_hooks(raw: object, source: str = "") -> tuple[Hook, ...]:
    """The `[[hooks]]` of one file. Raises ValueError; its text names the entry, counted from 1."""
    if not isinstance(raw, list):
        raise ValueError("hooks are tables: [[hooks]]")
    entries = cast("list[object]", raw)
    if len(entries) > HOOKS_MAX:
        raise ValueError(f"{len(entries)} hooks, of at most {HOOKS_MAX}")
    hooks: list[Hook] = []
    for number, entry in enumerate(entries, 1):
        try:
            hooks.append(_parse(entry, source))
        except ValueError as error:
            raise ValueError(f"hook {number}: {error}") from error
    return tuple(hooks)


def _parse(entry: object, source: str) -> Hook:
    if not isinstance(entry, dict):
        raise ValueError("not a table")
    given = cast("dict[str, Any]", entry)
    known = {field.name for field in fields(Hook)} - {"source"}
    if unknown := sorted(set(given) - known):
        raise ValueError(f"unknown setting {unknown[0]!r}; known are {', '.join(sorted(known))}")
    event = given.get("event")
    if not isinstance(event, str) or event not in EVENTS:
        raise ValueError(f"event is one of {', '.join(EVENTS)}, not {event!r}")
    rest = {name: value for name, value in given.items() if name != "command"}
    hook = Hook(command=_words(given.get("command")), source=source, **rest)
    if not isinstance(cast("object", hook.matcher), str):
        raise ValueError(f"matcher is a text, not {hook.matcher!r}")
    if EVENTS[event] is None and hook.matcher not in ("", "*"):
        raise ValueError(f"{event} has nothing that a matcher could be compared with")
    if type(hook.timeout_s) not in (int, float) or not 0 < hook.timeout_s <= HOOK_TIMEOUT_MAX_S:
        raise ValueError(
            f"timeout_s is more than 0 and at most {HOOK_TIMEOUT_MAX_S:g}, not {hook.timeout_s!r}"
        )
    if hook.on_error not in ("allow", "deny"):
        raise ValueError(f"on_error is 'allow' or 'deny', not {hook.on_error!r}")
    if hook.on_error == "deny" and event not in PREVENTABLE:
        raise ValueError(f"on_error = 'deny' is for {' and '.join(sorted(PREVENTABLE))}")
    return hook


def _words(given: object) -> tuple[str, ...]:
    words = cast("list[object]", given) if isinstance(given, list) else []
    command = tuple(word for word in words if isinstance(word, str) and "\0" not in word)
    if not command or len(command) < len(words) or not command[0]:
        raise ValueError('command is a list of words, such as ["python3", "/home/me/check.py"]')
    if "/" in command[0] and not command[0].startswith("/"):
        raise ValueError(f"{command[0]!r} is neither an absolute path nor a name to find on PATH")
    return command


def locate(command: Sequence[str], cwd: Path, path: str) -> str:
    """The program's file. Raises FileNotFoundError if that or the script it is to run is missing.

    `python3 missing.py` exits with 2, which would be the hook's word for "deny", every time.
    """
    from shutil import which  # here, for it imports three compressors

    program = which(command[0], path=path)
    if program is None or not program.startswith("/"):
        raise FileNotFoundError(f"no program {command[0]!r}")
    script = _script(command)
    if script is not None and not os.path.exists(cwd / script):  # noqa: PTH110 -- never raises
        raise FileNotFoundError(f"no file {script!r}; words are taken as they are, also ~ and $")
    return program


def _script(command: Sequence[str]) -> str | None:
    """The word that is a script by its looks. An interpreter's needs no suffix for that, but of
    other programs such a word may be a file that they are to make."""
    interpreter = _INTERPRETER.fullmatch(Path(command[0]).name)
    for word in command[1:]:
        if _SCRIPT.fullmatch(word) or (interpreter and _PATH.fullmatch(word)):
            return word
        if _CODE_FOLLOWS.fullmatch(word):
            return None
    return None
