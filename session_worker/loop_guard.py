"""Catches an agent that makes the same call again and again (tools-and-ux.md §2). Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sidecar.protocol import bounds


class LoopGuard:
    """One run's calls, in order. Equal are calls of one tool with equal input."""

    def __init__(self) -> None:
        self._last = ""
        self._count = 0

    def count(self, call: dict[str, Any]) -> int:
        """How often in a row this very call has been made now."""
        key = json.dumps([call["name"], call["input"]], sort_keys=True)
        self._count = self._count + 1 if key == self._last else 1
        self._last = key
        return self._count


def reminder(count: int) -> str:
    """What the model reads behind the result of the `count`th call in a row."""
    if count < bounds.LOOP_REMIND_CALLS:
        return ""
    return (
        f"[Call number {count} in a row with the same input. If its result does not help, try "
        "something else, or tell the user what is in the way.]"
    )


def is_stuck(counts: Sequence[int]) -> bool:
    """Whether the run ends rather than make these calls."""
    return any(count >= bounds.LOOP_STOP_CALLS for count in counts)
