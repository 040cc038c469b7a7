"""The ids of what agents ask the editor, renumbered: two workers may use the same one. Pure."""

from __future__ import annotations

import itertools
import json
from typing import Any

Key = tuple[str, str]
"""A session's id, and the id that its worker gave, as JSON: 1 and "1" are two ids."""


class AgentIds:
    """Which of our numbers stands for which request of which worker, while it is open."""

    def __init__(self) -> None:
        self._next = itertools.count(1)
        self._open: dict[int, tuple[str, Any]] = {}
        self._numbers: dict[Key, int] = {}

    def number(self, session_id: str, worker_id: Any) -> int:
        """The number of a request that is opened herewith."""
        number = next(self._next)
        self._open[number] = (session_id, worker_id)
        self._numbers[_key(session_id, worker_id)] = number
        return number

    def open_number(self, session_id: str, worker_id: Any) -> int | None:
        """The number of a request that waits for its answer; it goes on waiting."""
        return self._numbers.get(_key(session_id, worker_id))

    def settle(self, number: Any) -> tuple[str, Any] | None:
        """The session and the id that an answer is for; None if nothing of this number is open."""
        if type(number) is not int or number not in self._open:
            return None
        session_id, worker_id = self._open.pop(number)
        self._numbers.pop(_key(session_id, worker_id), None)
        return session_id, worker_id

    def forget(self, session_id: str) -> list[int]:
        """The numbers of all that a worker had open, which nobody waits for any more."""
        numbers = [number for number, (owner, _) in self._open.items() if owner == session_id]
        for number in numbers:
            self.settle(number)
        return numbers


def _key(session_id: str, worker_id: Any) -> Key:
    return session_id, json.dumps(worker_id)
