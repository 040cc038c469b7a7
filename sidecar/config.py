"""`config.toml`: the few things a user may set."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError


@dataclass(frozen=True)
class Config:
    """`spawn`: how sessions start, `fork` (from a zygote; Linux) or `exec` (from a warm spare)."""

    spawn: str = "fork" if sys.platform == "linux" else "exec"
    max_sessions: int = bounds.MAX_SESSIONS


def load(path: Path) -> Config:
    """The file's settings over the defaults; no file is no error. Raises `SidecarError`."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Config()
    except (OSError, ValueError) as error:
        raise _bad(path, str(error)) from error
    known = {field.name for field in fields(Config)}
    if unknown := sorted(set(raw) - known):
        raise _bad(path, f"unknown setting {unknown[0]!r}; known are {', '.join(sorted(known))}")
    return _checked(path, raw)


def _checked(path: Path, raw: dict[str, Any]) -> Config:
    config = Config(**raw)
    if config.spawn not in ("fork", "exec"):
        raise _bad(path, f"spawn is 'fork' or 'exec', not {config.spawn!r}")
    if config.spawn == "fork" and sys.platform != "linux":
        raise _bad(path, "spawn = 'fork' is safe on Linux only")
    if type(config.max_sessions) is not int or config.max_sessions < 1:
        raise _bad(path, f"max_sessions is a positive number, not {config.max_sessions!r}")
    return config


def _bad(path: Path, what: str) -> SidecarError:
    return SidecarError("invalid_params", f"{path}: {what}", "correct the file")
