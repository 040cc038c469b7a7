"""What settings say of permissions and of the sandbox. Pure but for the system's file."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sidecar.protocol import bounds
from sidecar.protocol.hooks import Hook
from sidecar.protocol.methods import PERMISSION_MODES
from sidecar.protocol.policy_file import Rules, parse_policy

SYSTEM_FILE = Path("/etc/sidecar/config.toml")
"""Of the machine's administrator: its rules and hooks come before the user's."""
HEADLESS = ("deny", "fail")
SANDBOX_LEVELS = ("none", "guard", "jail")


@dataclass(frozen=True)
class Sandbox:
    """`require`: rather no session than one with less."""

    level: str = "none"
    require: bool = False
    network: bool = False


@dataclass(frozen=True)
class Permissions:
    """`mode` is that of a session which asks for none. `headless` answers a question that nobody
    was there to answer for `headless_after_s`. `layers` are the system's rules and the user's;
    `hooks` come in that order, too."""

    mode: str = "ask"
    headless: str = "deny"
    headless_after_s: float = bounds.HEADLESS_AFTER_S
    additional_dirs: tuple[str, ...] = ()
    layers: tuple[Rules, Rules] = (Rules("system"), Rules("user"))
    hooks: tuple[Hook, ...] = ()


def read_permissions(raw: Mapping[str, Any], text: str) -> Permissions:
    """From the user's file, which is `text`, and the system's. Raises ValueError."""
    known = ("mode", "headless", "headless_after_s", "additional_dirs")
    rules, hooks = parse_policy(raw, "user", text, known)
    table = cast("dict[str, Any]", raw.get("permissions", {}))
    settings = {name: value for name, value in table.items() if name in known}
    _one_of("permissions.mode", settings.get("mode", "ask"), PERMISSION_MODES)
    _one_of("permissions.headless", settings.get("headless", "deny"), HEADLESS)
    after_s = settings.get("headless_after_s", 0)
    if type(after_s) not in (int, float) or not 0 <= after_s < math.inf:
        raise ValueError(f"permissions.headless_after_s is a number of seconds, not {after_s!r}")
    settings["additional_dirs"] = _directories(settings.get("additional_dirs", []))
    system_rules, system_hooks = _system()
    return Permissions(**settings, layers=(system_rules, rules), hooks=(*system_hooks, *hooks))


def read_sandbox(raw: Mapping[str, Any]) -> Sandbox:
    """The `[sandbox]` table. Raises ValueError."""
    table: Any = raw.get("sandbox", {})
    if not isinstance(table, dict):
        raise ValueError("sandbox is a table: [sandbox]")
    given = cast("dict[str, Any]", table)
    known = ("level", "require", "network")
    if unknown := sorted(set(given) - set(known)):
        raise ValueError(f"sandbox has no {unknown[0]!r}, only {', '.join(known)}")
    _one_of("sandbox.level", given.get("level", "none"), SANDBOX_LEVELS)
    for name in ("require", "network"):
        if not isinstance(given.get(name, False), bool):
            raise ValueError(f"sandbox.{name} is true or false")
    return Sandbox(**given)


def _system() -> tuple[Rules, tuple[Hook, ...]]:
    try:
        text = SYSTEM_FILE.read_text(encoding="utf-8")
        import tomllib  # here, for there seldom is a file

        raw = tomllib.loads(text)
        if unknown := sorted(set(raw) - {"permissions", "hooks"}):
            raise ValueError(f"the system cannot set {unknown[0]!r}")
        return parse_policy(raw, "system", text)
    except FileNotFoundError:
        return Rules("system"), ()
    except (OSError, ValueError) as error:
        raise ValueError(f"{SYSTEM_FILE}: {error}") from error


def _one_of(name: str, given: Any, choice: tuple[str, ...]) -> None:
    if given not in choice:
        raise ValueError(f"{name} is one of {', '.join(choice)}, not {given!r}")


def _directories(given: Any) -> tuple[str, ...]:
    named = cast("list[Any]", given) if isinstance(given, list) else [given]
    for path in named:
        # `expanduser` of os.path, unlike that of Path, bears a user that is not there
        if not isinstance(path, str) or "\0" in path or not _full(path).is_absolute():
            raise ValueError(f"permissions.additional_dirs are full paths, not {path!r}")
    return tuple(str(_full(path)) for path in named)


def _full(path: str) -> Path:
    return Path(os.path.expanduser(path))  # noqa: PTH111
