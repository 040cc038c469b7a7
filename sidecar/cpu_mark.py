"""How busy a process was since somebody last looked."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass
class CpuMark:
    """Where the last measurement stood, so that the next tells the load since then."""

    at: float | None = None
    cpu_s: float = 0.0

    def percent_since(self, cpu_s: float, age_s: float) -> float:
        """Load in percent of one core, the first time over the whole `age_s`; moves the mark.

        Processes that ended took their time with them, so it never goes below zero.
        """
        now = time.monotonic()
        used, passed = cpu_s - self.cpu_s, age_s if self.at is None else now - self.at
        self.at, self.cpu_s = now, cpu_s
        return round(max(0.0, 100 * used / passed), 1) if passed > 0 else 0.0
