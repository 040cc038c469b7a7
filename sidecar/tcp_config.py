"""What settings say of sessions that ask for TCP. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:]+\])(:[0-9]+)?")
"""As browsers send it: scheme, host, perhaps a port; no path, no pattern, no `null`."""


@dataclass(frozen=True)
class Tcp:
    """`origins`: whose requests are not refused for carrying an `Origin`. They need the token, too,
    and get no CORS headers."""

    origins: tuple[str, ...] = ()


def read_tcp(raw: Mapping[str, Any]) -> Tcp:
    """The `[tcp]` table. Raises ValueError."""
    table: Any = raw.get("tcp", {})
    if not isinstance(table, dict) or set(cast("dict[str, Any]", table)) - {"origins"}:
        raise ValueError('tcp is a table with nothing but origins: [tcp] origins = ["…"]')
    origins: Any = cast("dict[str, Any]", table).get("origins", [])
    if not isinstance(origins, list):
        raise ValueError(f"tcp.origins is a list, not {origins!r}")
    for origin in cast("list[Any]", origins):
        if not isinstance(origin, str) or not _ORIGIN.fullmatch(origin):
            raise ValueError(f"tcp.origins are like 'http://localhost:3000', not {origin!r}")
    return Tcp(tuple(cast("list[str]", origins)))
