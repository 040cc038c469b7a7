"""The states of a session and which may follow which. A table; a missing pair raises.

Shims report snapshots where the latest wins, so a state may be skipped on the way (a short run
turns `idle → running → idle` into nothing, a nap into `idle → starting`): any state of a session
that is up may follow any other. What never happens is a way back from an end but by `resume`.
"""

from __future__ import annotations

from sidecar.protocol.methods import ENDED_STATES, LIVE_STATES

LIVE = frozenset(LIVE_STATES)
ENDED = frozenset(ENDED_STATES)

_UP = LIVE - {"stopping"}

NEXT: dict[str, frozenset[str]] = {
    **dict.fromkeys(_UP, LIVE | ENDED),
    "stopping": ENDED,
    "exited": frozenset({"starting"}),
    "failed": frozenset({"starting", "exited"}),
    "lost": frozenset({"starting", "exited"}),
}


class IllegalTransition(Exception):
    """A session cannot go from one of these states to the other."""


def advance(state: str, reported: str) -> str:
    """The state after `reported`, which may repeat the present one. Raises `IllegalTransition`."""
    if reported != state and reported not in NEXT[state]:
        raise IllegalTransition(f"{state} cannot become {reported}")
    return reported
