"""`config.toml`: the few things a user may set."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from sidecar.permission_config import Permissions, Sandbox, read_permissions, read_sandbox
from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.ptc import CURRENT, PROFILES
from sidecar.tcp_config import Tcp, read_tcp
from sidecar.tools_config import Tools, read_tools
from sidecar.web_fetch_config import WebFetch, read_web_fetch

Prices = Mapping[str, Mapping[str, float]]
PRICES = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h")


@dataclass(frozen=True)
class Config:
    """`spawn`: how sessions start, `fork` (from a zygote; Linux) or `exec` (from a warm spare).

    `prices`: dollars for a million tokens, by model, with the names of `PRICES`; the first two must
    be there. They win over the prices that are known. `ptc_profile`: how new sessions with
    `programmatic_tools` speak of them, one of `PROFILES`. `permissions`, `sandbox`, `tcp`, `tools`
    and `web_fetch` are what sessions start with.
    """

    spawn: str = "fork" if sys.platform == "linux" else "exec"
    max_sessions: int = bounds.MAX_SESSIONS
    prices: Prices = field(default_factory=dict[str, Mapping[str, float]])
    ptc_profile: str = CURRENT
    permissions: Permissions = field(default_factory=Permissions)
    sandbox: Sandbox = field(default_factory=Sandbox)
    tcp: Tcp = field(default_factory=Tcp)
    tools: Tools = field(default_factory=Tools)
    web_fetch: WebFetch = field(default_factory=WebFetch)


def _parsed(text: str) -> dict[str, Any]:
    if not text:
        return {}
    import tomllib  # here, for a daemon without settings starts 4 ms sooner

    return tomllib.loads(text)


def load(path: Path) -> Config:
    """The file's settings over the defaults; no file is no error. Raises `SidecarError`."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, ValueError) as error:
        raise _bad(path, str(error)) from error
    try:
        raw = _parsed(text)
        raw |= {
            "permissions": read_permissions(raw, text),
            "sandbox": read_sandbox(raw),
            "tcp": read_tcp(raw),
            "tools": read_tools(raw),
            "web_fetch": read_web_fetch(raw),
        }
        raw.pop("hooks", None)  # the permissions hold them
    except (ValueError, RecursionError) as error:
        raise _bad(path, str(error)) from error
    known = {setting.name for setting in fields(Config)}
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
    if config.ptc_profile not in list(PROFILES):  # what TOML gives need not be hashable
        names = " or ".join(map(repr, PROFILES))
        raise _bad(path, f"ptc_profile is {names}, not {config.ptc_profile!r}")
    prices: Any = raw.get("prices", {})
    if not isinstance(prices, dict):
        raise _bad(path, 'prices are tables: [prices."model"]')
    for model, given in cast("dict[str, Any]", prices).items():
        if not _are_prices(given):
            wanted = f"{' and '.join(PRICES[:2])}, perhaps {', '.join(PRICES[2:])}"
            raise _bad(path, f"the prices of {model!r} are dollars for a million tokens: {wanted}")
    return config


def _are_prices(given: Any) -> bool:
    if not isinstance(given, dict):
        return False
    named = cast("dict[str, Any]", given)
    usd = [value for value in named.values() if type(value) in (int, float)]
    return (
        set(PRICES[:2]) <= set(named) <= set(PRICES)
        and len(usd) == len(named)
        and all(math.isfinite(value) and value >= 0 for value in usd)
    )


def _bad(path: Path, what: str) -> SidecarError:
    return SidecarError("invalid_params", f"{path}: {what}", "correct the file")
