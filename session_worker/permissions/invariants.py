"""What holds in every mode: the catastrophic is refused, the protected is asked about each time.

Called by verdict.py. Not a boundary: a script can do all of this in ways nobody can read. It is
there for the model that means no harm and has `rm -rf $DIR/` with an empty variable.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from session_worker.permissions.match import murky_tokens
from session_worker.permissions.paths import Realpath, canonical, inside, within
from session_worker.permissions.policy import Decision, Policy
from session_worker.permissions.programs import base_name
from session_worker.permissions.words import Word

Ruling = tuple[Decision, str]

ARGUMENTS = 200
"""Of one command that are looked at as paths; resolving one takes some 20 us."""

_SYSTEM = frozenset(
    {"Applications", "Library", "System", "Users", "bin", "boot", "dev", "etc", "home", "lib",
     "lib64", "opt", "private", "proc", "root", "run", "sbin", "srv", "sys", "usr", "var"}
)  # fmt: skip
_MAKE_FILE_SYSTEMS = ("mkfs", "mkfs.*", "mke2fs", "mkswap", "wipefs", "blkdiscard", "newfs*")
_DEVICE_WRITERS = frozenset({"cp", "dd", "mv", "shred", "tee"})
FREE_DEVICES = frozenset(
    {"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/zero", "/dev/full", "/dev/tty"}
)
_NO_DISKS = re.compile(r"/dev/(?:fd|pts|shm|tcp|udp|mqueue)(?:/|$)")
_HOME_FILES = (
    ".bash_aliases", ".bash_login", ".bash_logout", ".bash_profile", ".bashrc",
    ".config/autostart", ".config/environment.d", ".config/fish", ".config/git",
    ".config/systemd", ".cshrc", ".gitconfig", ".inputrc", ".kshrc", ".pam_environment",
    ".profile", ".ssh", ".tcshrc", ".xinitrc", ".xprofile", ".xsession", ".zlogin", ".zlogout",
    ".zprofile", ".zshenv", ".zshrc", "Library/LaunchAgents",
)  # fmt: skip
"""What a login, a shell or git reads and runs."""
_GIT_RUNS = frozenset({"config", "config.worktree", "hooks", "info", "modules", "worktrees"})
_LITERAL = re.compile(r"[^\s'\"()]*")
_MURKY_PLACE = re.compile(
    r"\.git/+(?:hooks|config|info)\b"
    r"|(?:~|\$HOME|\$\{HOME\})/+\.(?:ssh|gitconfig|bash_\w+|(?:ba|z|k|c|tc)shrc|\w*profile|zshenv)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Argument:
    """A word as a path: `text` may be incomplete unless `sure`; it counts from each of `bases`."""

    text: str
    sure: bool
    bases: tuple[str, ...]


def arguments(
    words: Sequence[Word], cwds: Iterable[str], values: Mapping[str, str]
) -> list[Argument]:
    """What the words may name, also behind `of=` and `--file=`."""
    found: list[Argument] = []
    bases = tuple(cwds) or ("/",)
    for word in words[:ARGUMENTS]:
        text, sure = word.guess(values)
        if "=" in text:
            found.append(Argument(text.partition("=")[2], sure, bases))
        if not text.startswith("-"):
            found.append(Argument(text, sure, bases))
    return found


def catastrophic(
    words: Sequence[Word],
    cwds: Iterable[str],
    values: Mapping[str, str],
    policy: Policy,
    realpath: Realpath,
) -> Ruling | None:
    """Deny for what destroys a system, a home or a session's directory; ask if it only may."""
    program = base_name(words[0]) if words[0].text else words[0].guess(values)[0]
    if any(fnmatchcase(program, pattern) for pattern in _MAKE_FILE_SYSTEMS):
        return Decision.DENY, f"{program} destroys what is on a disk"
    named = arguments(words[1:], cwds, values)
    if program in _DEVICE_WRITERS:
        for argument in named:
            if is_disk(argument.text):
                return Decision.DENY, f"{program} would write to the device {argument.text}"
    flags = [word.text for word in words[1:] if word.text and word.text.startswith("-")]
    if not _destroys_trees(program, flags):
        return None
    ruling = None
    for argument in named:
        for base in argument.bases:
            what = _dear(argument.text, base, policy, realpath)
            certain = len(argument.bases) == 1 or argument.text.startswith("/")
            if what and argument.sure and certain:
                return Decision.DENY, f"{program} would destroy {what}"
            if what:
                unsure = "a cd fails" if argument.sure else "a variable is empty"
                ruling = Decision.ASK, f"{program} would destroy {what} if {unsure}"
    return ruling


def _destroys_trees(program: str, flags: Sequence[str]) -> bool:
    short = "".join(flag[1:] for flag in flags if not flag.startswith("--"))
    long = any(len(flag) > 3 and "--recursive".startswith(flag) for flag in flags)
    if program == "rm":
        return long or "r" in short or "R" in short
    if program in ("chmod", "chown", "chgrp"):
        return long or "R" in short
    return program == "find" and "-delete" in flags and not any(map(_narrows, flags))


def _narrows(flag: str) -> bool:
    return flag not in ("-delete", "-depth", "-xdev", "-mindepth", "-maxdepth", "-mount")


def _dear(text: str, base: str, policy: Policy, realpath: Realpath) -> str | None:
    """What is lost with everything below the path, in words."""
    if not text:
        return None
    above, _, last = text.rpartition("/")
    if set(last) <= set(".*?[]!") and not {"*", "?"}.isdisjoint(last):  # `~/.*` is all of `~`
        text = f"{above}/" if "/" in text else "."
    head, last = os.path.split(os.path.join(base, text))  # noqa: PTH118
    if last in ("", ".", ".."):
        path = canonical(text, base, realpath)
    else:  # rm removes a link, not what it leads to
        parent = canonical(head, "/", realpath)
        path = parent and os.path.join(parent, last)  # noqa: PTH118
    if not path:
        return None
    if path == "/" or (path.count("/") == 1 and path[1:] in _SYSTEM):
        return f"the system ({path})"
    if within(str(policy.home), path):
        return f"the home directory ({path})"
    if any(within(str(root), path) for root in policy.roots):
        return f"the session's directory ({path})"
    return None


def is_disk(path: str) -> bool:
    path = os.path.normpath(path)
    return within(path, "/dev") and path not in FREE_DEVICES and not _NO_DISKS.match(path)


class Guard:
    """Tells the protected places; one decision's, because it looks up links once."""

    def __init__(self, policy: Policy, realpath: Realpath) -> None:
        self.policy, self.realpath = policy, realpath

    @cached_property
    def home_names(self) -> frozenset[str]:
        return frozenset(f"{self.policy.home}/{name}" for name in _HOME_FILES)

    @cached_property
    def home_files(self) -> frozenset[str]:
        """By name and without links: who keeps them in a repository edits them there."""
        found = (canonical(name, "/", self.realpath) for name in self.home_names)
        return frozenset({*self.home_names, *filter(None, found)})

    def place(self, path: str, *, by_link: bool) -> str | None:
        """Why a write to the canonical `path` is always asked about.

        `by_link` also finds what a link in the home directory leads to, which costs some 0.5 ms.
        """
        if inside(path, self.policy.protected):
            return "it belongs to Sidecar itself"
        parts = path.casefold().split("/")
        if ".sidecar" in parts:
            return "it is configuration of Sidecar"
        if ".git" in parts:
            below = parts[parts.index(".git") + 1 :]
            if not below or not _GIT_RUNS.isdisjoint(below):
                return "git runs what is written there"
        elif parts[-1] == "head":
            return "a HEAD makes git take the directory for a repository"
        files = self.home_files if by_link else self.home_names
        if not files.isdisjoint(_upwards(path)):
            return "a login, a shell or git reads it and runs what it says"
        return None

    def command(
        self, words: Sequence[Word], cwds: Iterable[str], values: Mapping[str, str]
    ) -> str | None:
        """The same for a command that may write to what it names."""
        removes = bool(words) and base_name(words[0]) in ("mv", "rm", "rmdir")
        for argument in arguments(words[1:], cwds, values):
            for base in argument.bases:
                path = canonical(argument.text, base, self.realpath) if argument.text else None
                if path is None:
                    continue
                called = os.path.normpath(os.path.join(base, argument.text))  # noqa: PTH118
                why = self.place(path, by_link=False) or self.place(called, by_link=False)
                if why:
                    return f"{argument.text}: {why}"
                if removes and any(within(str(own), path) for own in self.policy.protected):
                    return f"{argument.text}: it holds files of Sidecar itself"
        unread = [w.raw for w in words if w.text is None or not _LITERAL.fullmatch(w.text)]
        return next(filter(None, map(self.murky, unread)), None)

    def murky(self, text: str) -> str | None:
        """The same for text that could not be read."""
        if found := _MURKY_PLACE.search(text):
            return f"{found[0]}: something runs what is written there"
        if any(str(own) in text for own in self.policy.protected):
            return "it names files of Sidecar itself"
        return None


def _upwards(path: str) -> Iterator[str]:
    """The path and the directories it is in."""
    while path not in ("", "/"):
        yield path
        path = path.rpartition("/")[0]


def murky_catastrophe(text: str, home: Path) -> str | None:
    """`rm -rf /` and the like in text that could not be read."""
    tokens = murky_tokens(text)
    for at, token in enumerate(tokens):
        program = token.rpartition("/")[2]
        if program in ("mkfs", "wipefs") or program.startswith("mkfs."):
            return f"{program} destroys what is on a disk"
        if program == "rm":
            rest = tokens[at + 1 : at + 5]
            if rest[:1] and rest[0].startswith("-") and {"/", "/*", "~", "~/", str(home)} & {*rest}:
                return "rm would destroy the system or the home directory"
    return None
