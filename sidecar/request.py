"""What a create request must meet beyond its schema."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from sidecar import cgroups
from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.mcp import BadServer, parse_settings
from sidecar.protocol.rules import parse_rule


def check_create(params: dict[str, Any]) -> None:
    """Raises `SidecarError` (`invalid_params`). Reads the file system, changes nothing."""
    cwd = Path(params["cwd"])
    if not cwd.is_absolute():
        raise _invalid(f"cwd must be an absolute path, not {str(cwd)!r}", "give the full path")
    if not os.path.isdir(cwd):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        raise _invalid(f"cwd {cwd} is not a directory", "create it first")
    if not os.access(cwd, os.R_OK | os.X_OK):
        raise _invalid(f"cwd {cwd} cannot be entered", "check its permissions")
    if params["ring_bytes"] & (params["ring_bytes"] - 1):
        raise _invalid(
            f"ring_bytes must be a power of two, not {params['ring_bytes']}", "try 4194304"
        )
    _check_limits(params["limits"])
    for rule in params["deny"]:
        try:
            parse_rule(rule)
        except ValueError as error:
            raise _invalid(f"deny: {error}", "rules are as in docs/permissions.md") from None
    _check_servers(params["mcp_servers"])


def _check_servers(servers: dict[str, Any]) -> None:
    """What the session's worker would say much later, and of each server in a notice only."""
    for name, raw in servers.items():
        try:
            parse_settings(name, raw)
        except BadServer as error:
            raise SidecarError(
                "invalid_params",
                f"mcp_servers.{error}",
                "docs/tools.md has the members of a server",
                param=f"mcp_servers.{error.where}",
            ) from None


def _check_limits(limits: dict[str, Any]) -> None:
    if unkept := sorted(set(limits) - set(LIMITS_ENFORCED_BY)):
        raise _invalid(f"limits.{unkept[0]}: nobody enforces it in this version", "leave it out")
    least = bounds.LIMIT_MEMORY_MIN_BYTES
    if limits.get("memory_bytes", least) < least:
        raise _invalid(
            f"limits.memory_bytes must leave room for the session itself: at least {least}",
            "leave it out for no limit",
        )


def limits_report(limits: dict[str, Any], group: str | None) -> dict[str, Any]:
    """`limits` of session.status: what was asked, and beside it how each is enforced."""
    by = {
        name: "cgroup+watch" if cgroups.holds(group, name) else LIMITS_ENFORCED_BY[name]
        for name in limits
    }
    return {**limits, "enforced_by": by}


LIMITS_ENFORCED_BY = {
    "memory_bytes": "rlimit+watch" if sys.platform == "linux" else "watch",
    "processes": "watch",
    "cpu_s": "watch",
    "tokens": "worker",
    "cost_usd": "worker",
}
"""A limit that is not here is refused: one that nobody enforces must not look kept."""


def _invalid(message: str, hint: str) -> SidecarError:
    return SidecarError("invalid_params", message, hint)
