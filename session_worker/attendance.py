"""Whether anybody is there whom a session could ask.

Streams and waiting requests attend while they last; a client that polls attends for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from sidecar.protocol import bounds


class Attendance:
    """Ticks are counted, not clocks compared: a worker that was stopped for two minutes has not
    been alone for two minutes."""

    def __init__(self) -> None:
        self._attached = 0
        self._visits = 0

    @contextmanager
    def attached(self) -> Generator[None]:
        self._attached += 1
        try:
            yield
        finally:
            self._attached -= 1
            self.polled()

    def polled(self) -> None:
        """Somebody looked, and will look again."""
        self._visits += 1

    async def until_alone(self, for_s: float) -> None:
        """Returns once nobody has attended for so long, counted from now."""
        alone_s = 0.0
        while self._attached or alone_s < for_s:
            before = self._visits
            tick_s = min(bounds.ATTENDANCE_TICK_S, for_s) or bounds.ATTENDANCE_TICK_S
            await asyncio.sleep(tick_s)
            alone_s = 0.0 if self._attached or self._visits > before else alone_s + tick_s
