"""What a tool is: its schema for the model, its handler, and what a handler gets and returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel


@dataclass
class Shell:
    """What carries over from one command to the next: the working directory, nothing else."""

    cwd: Path


@dataclass(frozen=True)
class ToolContext:
    """What one call may use. `emit_output` takes live text and never blocks."""

    call_id: str
    root: Path
    shell: Shell
    env: Mapping[str, str]
    spill_dir: Path
    emit_output: Callable[[str], None]


@dataclass(frozen=True)
class ToolResult:
    """`content` goes to the model as it is; `meta` goes to clients as `rawOutput`."""

    content: str
    is_error: bool = False
    meta: dict[str, Any] = field(default_factory=dict[str, Any])


P = TypeVar("P", bound=BaseModel)


@dataclass(frozen=True)
class ToolSpec(Generic[P]):
    """One entry of the dispatch map.

    `kind` is an ACP-C tool kind; `render` gives the title a person sees.
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
