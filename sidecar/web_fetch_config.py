"""What settings say of `web_fetch`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

_HOST = re.compile(r"(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
"""As it is in a URL: a name or an address, perhaps a port; no pattern."""


@dataclass(frozen=True)
class WebFetch:
    """`allow_private`: the hosts that may be at addresses which are not public."""

    allow_private: tuple[str, ...] = ()


def read_web_fetch(raw: Mapping[str, Any]) -> WebFetch:
    """The `[web_fetch]` table. Raises ValueError."""
    table: Any = raw.get("web_fetch", {})
    if not isinstance(table, dict) or set(cast("dict[str, Any]", table)) - {"allow_private"}:
        raise ValueError(
            'web_fetch is a table with nothing but allow_private: [web_fetch] allow_private = ["…"]'
        )
    hosts: Any = cast("dict[str, Any]", table).get("allow_private", [])
    if not isinstance(hosts, list):
        raise ValueError(f"web_fetch.allow_private is a list, not {hosts!r}")
    for host in cast("list[Any]", hosts):
        if not isinstance(host, str) or not _HOST.fullmatch(host):
            raise ValueError(
                "web_fetch.allow_private are hosts in small letters, perhaps with a port, such as "
                f"'wiki.example.org' or '127.0.0.1:8080', not {host!r}"
            )
    return WebFetch(tuple(cast("list[str]", hosts)))
