"""What confinement of commands is asked for, and what a session got.

none: commands may what the user may. guard: they write only in their directories (and shared
memory), have no network unless asked for, and signal and trace only their like; they read
everything, change modes and times of any file, and connect to any socket that is one. jail:
besides, they change nothing outside, see neither other processes nor our files nor the user's
secrets, have a private /tmp, and what they leave running ends with them. None holds against bugs
of the kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from session_worker.sandbox import bwrap, guard, landlock


class Level(StrEnum):
    NONE = "none"
    GUARD = "guard"
    JAIL = "jail"


_DOWN = [Level.JAIL, Level.GUARD, Level.NONE]


@dataclass(frozen=True)
class SandboxWish:
    """`require`: rather no session than less than `level`. `network`: leave the internet alone."""

    level: Level = Level.NONE
    require: bool = False
    network: bool = False


@dataclass(frozen=True)
class Obtained:
    """`detail` is for people and JSON: what the system offers, and under `missing`, by level, why
    a session has less than it asked for."""

    level: Level
    network: bool = True
    detail: dict[str, Any] = field(default_factory=dict[str, Any])


class SandboxUnavailable(Exception):
    """What was required cannot be had; nothing may run."""

    def __init__(self, level: Level, reason: str) -> None:
        super().__init__(f"no sandbox of level {level}: {reason}")
        self.level = level
        self.reason = reason


def obtain(wish: SandboxWish, roots: Sequence[Path], private: Sequence[Path]) -> Obtained:
    """The highest level, up to the one wished for, that this system has for commands which write
    in `roots` and not in `private`, our own directories. Found by doing it: 10 ms for a jail.

    Raises SandboxUnavailable.
    """
    missing: dict[str, str] = {}
    for level in _DOWN[_DOWN.index(wish.level) :]:
        if level == Level.NONE:
            break
        reason = _exposed(roots, private) or _problem(level)
        if reason is None:
            return Obtained(level, wish.network, _detail(level) | {"missing": missing})
        if wish.require:
            raise SandboxUnavailable(level, reason)
        missing[level] = reason
    return Obtained(Level.NONE, detail={"missing": missing})


def _problem(level: Level) -> str | None:
    if sys.platform != "linux":
        return "only Linux has what it is made of"
    return guard.problem() if level == Level.GUARD else bwrap.problem()


def _detail(level: Level) -> dict[str, Any]:
    if level == Level.JAIL:
        return {"bwrap": bwrap.find()}
    version = landlock.abi()
    return {"landlock_abi": version, "signals": version >= landlock.ABI_SCOPES}


def _exposed(roots: Sequence[Path], private: Sequence[Path]) -> str | None:
    """Why no sandbox could keep a command away from us."""
    for root in (path.resolve() for path in roots):
        for place in (path.resolve() for path in private):
            if place.is_relative_to(root):
                return f"{root} may be written, and Sidecar's own {place} is in it"
    return None


def outermost(roots: Sequence[Path]) -> list[Path]:
    """Canonical, without those inside another: a command could put a link in place of one."""
    found = {path.resolve() for path in roots}
    return sorted(root for root in found if found.isdisjoint(root.parents))
