"""Which rule a person may remember, so that a call like this one is not asked about again.

Called by verdict.py, which tries the rule out before it is offered. As narrow as is useful: the
sub-command of the programs that have some, the very command of those where the arguments are
what matters.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from session_worker.permissions.match import host
from session_worker.permissions.paths import within
from session_worker.permissions.programs import LAUNCHERS
from session_worker.permissions.words import Word
from sidecar.protocol.rules import parse_rule

PROPOSALS = 5
"""In one question (tools-and-ux.md §3.2): nobody reads more."""
EXACT_CHARS = 200
"""A longer command will not come again word by word."""

_ARITY = {
    **dict.fromkeys(
        ("apt", "apt-get", "brew", "bun", "bundle", "cargo", "composer", "conda", "docker",
         "dotnet", "flutter", "git", "go", "gradle", "helm", "just", "kubectl", "mix", "mvn",
         "nix", "npm", "npx", "pip", "pip3", "pipx", "pnpm", "podman", "poetry", "rails", "rake",
         "ruff", "rustup", "swift", "systemctl", "terraform", "tox", "uv", "uvx", "yarn"), 2),
    **dict.fromkeys(
        ("aws", "az", "bun run", "bundle exec", "docker compose", "gcloud", "gh", "git remote",
         "git stash", "git submodule", "git worktree", "hatch run", "npm run", "pdm run",
         "pnpm exec", "pnpm run", "poetry run", "python -m", "python3 -m", "uv pip", "uv run",
         "yarn run"), 3),
}  # fmt: skip
"""How many words say what a program is asked to do; others say it with the first."""
_EXACT = LAUNCHERS | {
    ".", "awk", "chmod", "chown", "cp", "crontab", "curl", "dd", "deno", "docker exec",
    "docker run", "git config", "git filter-branch", "kill", "killall", "kubectl exec", "ln",
    "make", "mv", "nc", "node", "osascript", "perl", "php", "pkill", "podman exec", "podman run",
    "psql", "python", "python2", "python3", "rm", "rsync", "ruby", "scp", "sed", "sftp", "source",
    "tee", "wget",
}  # fmt: skip
"""With any arguments at all these can do anything."""


def command_rule(words: Sequence[Word], *, exact: bool) -> str | None:
    """The rule for a simple command; None if what it runs is not known.

    `exact` is for the programs that may read anyway: what is asked about are the arguments.
    """
    texts = [word.text or "" for word in words]
    arity = max(_ARITY.get(" ".join(texts[:length]), 1) for length in (1, 2))
    fixed = texts[:arity]
    flags = [text for text in fixed[1:] if text.startswith("-")]
    module = arity == 3 and fixed[1:2] == ["-m"]
    free = not _EXACT.isdisjoint({fixed[-1], " ".join(fixed[:2])}) or fixed[0] in _EXACT
    if len(fixed) == arity and all(fixed) and not exact and (module or not (free or flags)):
        return _checked(f"bash({' '.join(map(_escaped, fixed))} *)")
    if all(word.text is not None for word in words) and sum(map(len, texts)) <= EXACT_CHARS:
        return _checked(f"bash({' '.join(map(_escaped, texts))})")
    return None


def file_rule(family: str, path: str, root: Path) -> str | None:
    """The rule for a file: its directory inside the session's, else the file alone."""
    if within(path, str(root)):
        below = path[len(str(root)) :].strip("/")
        directory = below.rpartition("/")[0]
        spec = f"{_glob_escaped(directory)}/**" if directory else _glob_escaped(below or ".")
    else:
        spec = _glob_escaped(path)
    return _checked(f"{family}({spec})")


def subject_rule(family: str, tool: str, subject: str | None) -> str | None:
    """The rule for an MCP tool, a host, a kind of task; for anything else the tool."""
    if family == "web_fetch":
        name = host(subject or "")
        return _checked(f"web_fetch(domain:{name})") if name else None
    if family in ("mcp", "task") and subject:
        return _checked(f"{family}({_glob_escaped(subject)})")
    return _checked(tool)


def _glob_escaped(text: str) -> str:
    return re.sub(r"[*?\[]", r"[\g<0>]", text)


def _escaped(text: str) -> str:
    escaped = _glob_escaped(text)
    return escaped if re.fullmatch(r"[\w@%+=:,./\[\]*?-]+", escaped) else shlex.quote(escaped)


def _checked(text: str) -> str | None:
    try:
        return str(parse_rule(text))
    except ValueError:
        return None
