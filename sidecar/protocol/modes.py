"""The permission modes in their order: the one table of which is laxer than which."""

from __future__ import annotations

STRICTEST_FIRST = ("plan", "ask", "accept-edits", "auto", "bypass")
"""Each allows what those before it do, and more (docs/permissions.md)."""


def stricter(one: str, other: str) -> str:
    return min(one, other, key=STRICTEST_FIRST.index)
