"""Branch and number of changes of a project, without starting anything the project configures.

Called for the system prompt. A repository's own configuration can name programs that `git status`
runs: a file system monitor, hooks, filters of attributes, what fetches missing objects of a partial
clone (CVE-2022-24765 and its kin). Each is switched off here; the time is short.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from session_worker.project.reading import Refused, canonical, read_text
from session_worker.tools.process import end_group, ended_on_error, start, wait_exit
from sidecar.protocol.bounds import KIB

GIT_STATUS_S = 0.5
"""For counting the changes: the first answer waits for it, and huge repositories take seconds."""
GIT_OUTPUT_BYTES = 256 * KIB
"""Of `git status` read: past some thousand changed files their number says nothing more."""
GIT_FILTERS_MAX = 50
"""Configured filters switched off by name; git-lfs is one."""

_BRANCH = "# branch.head "
_HEAD = re.compile(
    r"(?:ref: refs/heads/(?P<branch>(?!\.invalid)\S+)|(?P<commit>[0-9a-f]{40,64}))\s*"
)
_FILTER = re.compile(r"filter\.[^=\n]+\.[a-z-]+")
_GIT = (
    "--no-optional-locks",
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.untrackedCache=false"),
    *("-c", "core.hooksPath=/dev/null"),
)
_LIST_FILTERS = ("config", "-z", "--name-only", "--get-regexp", r"^filter\.")
_STATUS = (
    *("status", "--porcelain=v2", "--branch", "-z"),
    *("--no-renames", "--ignore-submodules=all", "--untracked-files=normal"),
)


@dataclass(frozen=True)
class Checkout:
    """None is what git did not say in time, or would not say."""

    branch: str | None
    changes: int | None


async def checkout(root: Path, environ: Mapping[str, str]) -> Checkout:
    """What is checked out in a project with a `.git`. `environ` is the tools'."""
    ends = time.monotonic() + GIT_STATUS_S
    env = _environment(root, environ)
    filters = await _run(_LIST_FILTERS, root, env, ends)
    settings = None if filters is None else _without_filters(filters)
    if settings is None:
        return Checkout(read_branch(root), None)
    entries = await _run((*settings, f"--work-tree={root}", *_STATUS), root, env, ends)
    if not entries:
        return Checkout(read_branch(root), None)
    named = [entry.removeprefix(_BRANCH) for entry in entries if entry.startswith(_BRANCH)]
    changes = sum(entry.startswith(("1 ", "u ", "? ")) for entry in entries)
    detached = named == ["(detached)"]
    return Checkout(read_branch(root) if detached or not named else named[0], changes)


def read_branch(root: Path) -> str | None:
    """The branch that is checked out, or `detached at …`; None for anything else."""
    git = root / ".git"
    try:
        if link := read_text(git, None, KIB):
            git = root / link.removeprefix("gitdir:").strip()
        head = _HEAD.fullmatch(read_text(git / "HEAD", None, KIB) or "")
    except Refused:
        return None
    if head is None:
        return None
    return head["branch"] or f"detached at {head['commit'][:8]}"


def _environment(root: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The user's own settings count. A `git` that the project brings along does not."""
    places = [
        place
        for place in environ.get("PATH", "").split(os.pathsep)
        if place.startswith("/") and not canonical(Path(place)).is_relative_to(root)
    ]
    return {
        "PATH": os.pathsep.join(places),
        "HOME": environ.get("HOME", ""),
        "GIT_ALLOW_PROTOCOL": "none",  # what a partial clone lacks is not fetched
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_CEILING_DIRECTORIES": str(root.parent),
        "GIT_TERMINAL_PROMPT": "0",
    }


def _without_filters(keys: Sequence[str]) -> list[str] | None:
    """Options that switch off what `keys` configure; None if they cannot say all of it. Pure."""
    if len(keys) > GIT_FILTERS_MAX or not all(map(_FILTER.fullmatch, keys)):
        return None
    off = [f"{key}={'false' if key.endswith('.required') else ''}" for key in keys]
    return [word for setting in off for word in ("-c", setting)]


async def _run(
    arguments: Sequence[str], cwd: Path, env: Mapping[str, str], ends: float
) -> list[str] | None:
    """The NUL-terminated words that git says; None if it fails, or says too much or nothing yet."""
    program = shutil.which("git", path=env["PATH"]) if env["PATH"] else None
    if program is None:
        return None
    with TemporaryFile() as output:
        try:
            child = start((program, *_GIT, *arguments), cwd, env, output.fileno())
        except OSError:
            return None
        async with ended_on_error(child):
            in_time = await wait_exit(child, max(0.0, ends - time.monotonic()))
        if not in_time:
            await end_group(child.pid, grace_s=0)
            child.poll()
            return None
        said = os.pread(output.fileno(), GIT_OUTPUT_BYTES, 0)
    if child.returncode not in (0, 1) or len(said) == GIT_OUTPUT_BYTES:  # 1: no such setting
        return None
    return said.decode(errors="replace").split("\0")[:-1]
