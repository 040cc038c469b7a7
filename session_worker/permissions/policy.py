"""What a decision is made of: the request, the policy it is held against, the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sidecar.protocol.policy_file import Rules
from sidecar.protocol.rules import Rule


class Decision(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True)
class Policy:
    """What a session is held to.

    `layers` go from the strongest to the weakest; their lists add up, and one deny wins. `roots`
    are canonical, the session's directory first; `protected` are the canonical directories of
    our own config, state and sockets. In a project that is not `trusted` git itself may run what
    the repository's configuration says. `rejected` are the rejects somebody had remembered.
    """

    mode: str
    layers: tuple[Rules, ...]
    roots: tuple[Path, ...]
    home: Path
    protected: tuple[Path, ...]
    trusted: bool
    rejected: tuple[Rule, ...] = ()


@dataclass(frozen=True)
class Request:
    """One tool call. Only `bash` has `command` and `cwd`, where it starts.

    `paths` are as the model wrote them, relative to the first root; a file tool without any
    means that root. `subject` is `server__tool` of an MCP call and the URL of a fetch.
    """

    tool: str
    family: str
    read_only: bool
    command: str | None = None
    cwd: Path | None = None
    paths: tuple[str, ...] = ()
    subject: str | None = None


@dataclass(frozen=True)
class Verdict:
    """The decision and what a person or the model is told about it.

    `parts` are what the call consists of, each with what decided it, such as `allow:builtin` or
    `ask:rule bash(git push *)`. `proposals` are rules that would allow this very call if they
    were remembered; without any it must not be. `outside` are the canonical paths beyond the
    roots that a file tool would touch.
    """

    decision: Decision
    reason: str
    parts: tuple[tuple[str, str], ...]
    proposals: tuple[str, ...] = ()
    outside: tuple[Path, ...] = ()
