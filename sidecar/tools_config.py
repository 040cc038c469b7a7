"""What settings say of tools. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True)
class Tools:
    """`client_terminal`: commands run in the terminal of a client that offers one, outside of the
    session's process tree."""

    client_terminal: bool = False


def read_tools(raw: Mapping[str, Any]) -> Tools:
    """The `[tools]` table. Raises ValueError."""
    table: Any = raw.get("tools", {})
    if not isinstance(table, dict) or set(cast("dict[str, Any]", table)) - {"client_terminal"}:
        raise ValueError("tools is a table with nothing but client_terminal: [tools]")
    given: Any = cast("dict[str, Any]", table).get("client_terminal", False)
    if not isinstance(given, bool):
        raise ValueError(f"tools.client_terminal is true or false, not {given!r}")
    return Tools(given)
