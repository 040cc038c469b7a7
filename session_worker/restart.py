"""When a crashed worker is started again, and when no more. Pure (supervision.md §b)."""

from __future__ import annotations

from collections.abc import Sequence

from sidecar.protocol import bounds


def recent(crashes: Sequence[float], now: float) -> list[float]:
    """The crashes that still count, `now` included. Times are monotonic seconds."""
    return [*(t for t in crashes if now - t < bounds.RESTART_WINDOW_S), now]


def back_off(crashes: int, jitter: float) -> float | None:
    """Seconds until the next start after this many recent crashes; None to give up.

    `jitter` is a factor around 1, so that many sessions do not come back in step.
    """
    if crashes >= bounds.RESTART_CRASHES_MAX:
        return None
    return min(bounds.RESTART_MAX_S, bounds.RESTART_FIRST_S * 2 ** (crashes - 1)) * jitter
