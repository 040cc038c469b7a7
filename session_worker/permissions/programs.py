"""Programs that run other programs: which word the real one starts at, and what to look into.

Called by shell.py. `unwrapped` may make a call allowed, so it gives up on anything it does not
know; `hidden` only finds more to refuse, so it looks at too much rather than too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from session_worker.permissions.words import Word

WRAPPERS_DEEP = 5
"""`timeout 5 nice nohup …`: nobody stacks more, and a loop over them must end."""
SUFFIXES = 16
"""Words behind `sudo`, `xargs` and the like that may be where the real program starts."""
HIDDEN_WORDS = 200
"""Of a program behind a launcher: as many as the invariants look at."""

SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh"})
PLAIN_SHELL_FLAGS = re.compile(r"-[elux]*c")
LAUNCHERS = SHELLS | {
    "builtin", "busybox", "bwrap", "chroot", "coproc", "doas", "env", "eval", "exec", "find",
    "flock", "ionice", "nsenter", "parallel", "script", "setsid", "ssh", "strace", "su", "sudo",
    "systemd-run", "taskset", "unshare", "watch", "xargs", "command", "nice", "nohup", "stdbuf",
    "time", "timeout",
}  # fmt: skip
"""What deny and ask rules and the invariants look through."""
WITH_SUBCOMMANDS = frozenset(
    {"apt", "apt-get", "aws", "az", "brew", "cargo", "docker", "gcloud", "gh", "git", "go", "helm",
     "kubectl", "npm", "pip", "pnpm", "podman", "systemctl", "terraform", "uv", "yarn"}
)  # fmt: skip
"""Programs that take options in front of their sub-command: `git -C dir push`."""
GIT_VALUED = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env"})


@dataclass(frozen=True)
class _Wrapper:
    flags: str = ""
    valued: str = ""
    long: frozenset[str] = frozenset()
    operand: re.Pattern[str] | None = None


_WRAPPERS = {
    "timeout": _Wrapper(
        "v",
        "ks",
        frozenset({"--preserve-status", "--foreground", "--kill-after", "--signal", "--verbose"}),
        re.compile(r"[0-9]+(?:\.[0-9]+)?[smhd]?"),
    ),
    "time": _Wrapper("p"),
    "nice": _Wrapper("0123456789", "n", frozenset({"--adjustment"})),
    "nohup": _Wrapper(),
    "stdbuf": _Wrapper("", "ioe", frozenset({"--input", "--output", "--error"})),
    "command": _Wrapper("p"),
}


def unwrapped(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words without `timeout 5`, `nice -n 3` and the like in front."""
    for _ in range(WRAPPERS_DEEP):
        start = _inner_start(words)
        if start is None:
            break
        words = words[start:]
    return words


def _inner_start(words: tuple[Word, ...]) -> int | None:
    wrapper = _WRAPPERS.get(words[0].text or "") if words else None
    if wrapper is None:
        return None
    texts = [word.text or "" for word in words]
    at = 1
    while at < len(texts) and texts[at].startswith("-"):
        option = texts[at]
        at += 1
        if option == "--":
            break
        if option.startswith("--"):
            if option.partition("=")[0] not in wrapper.long:
                return None
            continue
        rest = option[1:].lstrip(wrapper.flags) if wrapper.flags else option[1:]
        if rest and rest[0] not in wrapper.valued:
            return None
        at += len(rest) == 1
    if wrapper.operand:
        if at >= len(texts) or not wrapper.operand.fullmatch(texts[at]):
            return None
        at += 1
    return at if at < len(texts) and all(texts[:at]) else None


def base_name(word: Word) -> str:
    """A program's name without its directory, in lower case: macOS finds `/bin/RM`."""
    return (word.text or "").rpartition("/")[2].lower()


def hidden(words: tuple[Word, ...]) -> Iterator[tuple[Word, ...]]:
    """What the command may run besides itself."""
    program = base_name(words[0])
    if program in LAUNCHERS:
        for start in range(1, min(len(words), SUFFIXES)):
            yield words[start : start + HIDDEN_WORDS]
    elif program in WITH_SUBCOMMANDS and len(words) > 2 and _is_option(words[1]):
        yield from _without_options(program, words)


def scripts(words: tuple[Word, ...]) -> Iterator[str]:
    """Arguments that a launcher may hand to a shell."""
    if base_name(words[0]) in LAUNCHERS:
        for word in words[1:SUFFIXES]:
            if word.text and re.search(r"[\s;&|]", word.text):
                yield word.text


def plain_shell(words: tuple[Word, ...]) -> str | None:
    """The script of `bash -c '…'`, if that is all there is to the command."""
    if len(words) >= 3 and words[0].text in SHELLS:
        flags = words[1].text
        if flags and PLAIN_SHELL_FLAGS.fullmatch(flags):
            return words[2].text
    return None


def _is_option(word: Word) -> bool:
    return word.raw.startswith("-")


def _without_options(program: str, words: tuple[Word, ...]) -> Iterator[tuple[Word, ...]]:
    """The command from its sub-command on; where an option may have a value, both readings."""
    at = 1
    while at < min(len(words), SUFFIXES) and _is_option(words[at]):
        valued = words[at].text in GIT_VALUED if program == "git" else True
        at += 1
        if valued and at < len(words) and not _is_option(words[at]):
            if program != "git":
                yield words[:1] + words[at:]
            at += 1
    yield words[:1] + words[at:]
