"""What a tool is: its schema for the model, its handler, and what a handler gets and returns."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from session_worker.editor import Editor
from session_worker.project.skills import Skill
from session_worker.tools import process
from session_worker.tools.jobs import Jobs
from session_worker.tools.seen import SeenFiles
from sidecar.protocol import bounds

Block = dict[str, Any]


Launch = Callable[..., subprocess.Popen[bytes]]
"""Starts a command as `process.start` does."""


Delegate = Callable[[str, str, "ToolContext"], Awaitable["ToolResult"]]
"""Has a subagent do what a prompt says; with it a description for people."""


async def _no_subagents(_prompt: str, _description: str, _ctx: ToolContext) -> ToolResult:
    return ToolResult("there are no subagents here", is_error=True)


@dataclass
class Shell:
    """What carries over from one command to the next: the working directory, nothing else."""

    cwd: Path


@dataclass(frozen=True)
class ToolContext:
    """What one call may use.

    `root` is the session's directory: relative paths start there. File tools stay inside `roots`;
    `granted` are canonical paths outside that somebody allowed this one call. `emit_output` takes
    live text and never blocks.
    """

    call_id: str
    root: Path
    shell: Shell
    env: Mapping[str, str]
    spill_dir: Path
    emit_output: Callable[[str], None]
    extra_roots: tuple[Path, ...] = ()
    granted: frozenset[Path] = frozenset()
    seen: SeenFiles = field(default_factory=SeenFiles)
    jobs: Jobs = field(default_factory=Jobs)
    hidden: Callable[[Path], bool] = lambda _: False
    """Whether a rule keeps the model from reading a canonical path: searches leave it out."""
    skills: Mapping[str, Skill] = field(default_factory=dict[str, Skill])
    launch: Launch = process.start
    """Perhaps into a sandbox."""
    until: float | None = None
    """Loop time by which the call must have ended: code waits for it."""
    private_hosts: Collection[str] | None = frozenset()
    """Hosts that a fetch may ask wherever they are; None: there is no network."""
    editor: Editor | None = None
    """The client that the run belongs to, if tools may ask it."""
    client_terminal: bool = False
    """Whether commands run in that client's terminal, if it offers one."""
    delegate: Delegate = _no_subagents

    @property
    def roots(self) -> tuple[Path, ...]:
        return (self.root, *self.extra_roots)

    def within(self, seconds: int) -> int:
        """So long, or as long as there is time; whole seconds, one at least."""
        if self.until is None:
            return seconds
        return max(1, min(seconds, int(self.until - asyncio.get_running_loop().time())))


@dataclass(frozen=True)
class FileChange:
    """What a call did to a file, for clients to show; `old` is None for a new file."""

    path: Path
    old: str | None
    new: str


@dataclass(frozen=True)
class ToolResult:
    """`content` goes to the model: text, or blocks where it is more than that. `meta` goes to
    clients as `rawOutput`, `changes` as diffs, `plan` as the entries of a `plan` update."""

    content: str | list[Block]
    is_error: bool = False
    meta: dict[str, Any] = field(default_factory=dict[str, Any])
    changes: Sequence[FileChange] = ()
    plan: list[dict[str, str]] | None = None


P = TypeVar("P", bound=BaseModel)


def _no_paths(_: BaseModel) -> Sequence[str]:
    return ()


def _nothing_wrong(_: BaseModel) -> str:
    return ""


@dataclass(frozen=True)
class ToolSpec(Generic[P]):
    """One entry of the dispatch map.

    `kind` is an ACP-C tool kind; `render` gives the title a person sees, `paths` the files and
    directories a call names, as the model wrote them. `family` is what permission rules call it;
    a tool without one does nothing that needs a permission. `timeout_s` is None for a tool that
    keeps its own time. Calls of a tool that is `side_by_side` share with each other, although they
    change something. A tool whose schema is not made from `params` brings its own `input_schema`,
    and `invalid` says what is wrong with input that `params` let through. `preview` is what a call
    would do to a file, for the person who is asked; it runs in a thread and may raise Refused.
    Contract of `handler`: a refusal is a `ToolResult` with `is_error`; an exception is a bug,
    which the dispatcher turns into one.
    """

    name: str
    description: str
    params: type[P]
    handler: Callable[[P, ToolContext], Awaitable[ToolResult]]
    kind: str
    read_only: bool
    render: Callable[[P], str]
    family: str | None = None
    paths: Callable[[P], Sequence[str]] = _no_paths
    timeout_s: float | None = None
    max_chars: int = bounds.TOOL_RESULT_CHARS
    side_by_side: bool = False
    input_schema: dict[str, Any] | None = None
    invalid: Callable[[P], str] = _nothing_wrong
    preview: Callable[[P, ToolContext], FileChange | None] | None = None
