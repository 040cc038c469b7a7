"""What the tools of MCP servers are called: `server__tool`, as the API takes it. Pure.

Back from a name goes only by the table: a sanitised name does not say where it came from.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import count

NAME_CHARS = 64
"""The API allows 128; 64 is what other back-ends take (tools-and-ux.md §6)."""
KEPT_CHARS = 55
"""Of a name that needs a digest behind it: with `_` and 8 digits these are NAME_CHARS."""

Origin = tuple[str, str]
"""Server and tool, as they call themselves."""


def plain(server: str, tool: str) -> str:
    """The name if nothing speaks against it; the server's part has no `__` inside."""
    part = re.sub("_{2,}", "_", _sanitized(server))
    return f"{part}__{_sanitized(tool)}"


def assign(
    origins: Iterable[Origin], known: Mapping[str, Origin], builtin: Collection[str]
) -> dict[str, Origin]:
    """Names for `origins`, added to those that are `known`.

    Who has a name keeps it, also while it is not offered: a name in the conversation or in a rule
    must never come to mean another tool. The order of `origins` does not matter.
    """
    table = dict(known)
    new = sorted(set(origins) - set(table.values()))
    wanted = Counter(plain(*origin) for origin in new)
    unchanged = Counter(plain(*origin) for origin in new if _is_unchanged(origin))
    digested: list[Origin] = []
    for origin in new:
        name = plain(*origin)
        alone = wanted[name] == 1 or (_is_unchanged(origin) and unchanged[name] == 1)
        if alone and len(name) <= NAME_CHARS and name not in builtin and name not in table:
            table[name] = origin
        else:
            digested.append(origin)
    for origin in digested:
        taken = {*table, *builtin}
        table[next(name for name in _digested(origin) if name not in taken)] = origin
    return table


def _is_unchanged(origin: Origin) -> bool:
    return plain(*origin) == "__".join(origin)


def _digested(origin: Origin) -> Iterable[str]:
    """More than one: whoever chooses the names of tools can make 8 digits collide."""
    for attempt in count():
        salt = f"\0{attempt}" if attempt else ""
        digest = hashlib.sha256("\0".join(origin).encode() + salt.encode()).hexdigest()[:8]
        yield f"{plain(*origin)[:KEPT_CHARS]}_{digest}"


def _sanitized(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)
