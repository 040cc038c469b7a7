"""The states of a session and which may follow which. A table; a missing pair raises.

Reports are snapshots where the latest wins, so a state may be skipped on the way (a short run
turns `idle → running → idle` into nothing), and the table says so.
"""

from __future__ import annotations

from sidecar.protocol.methods import ENDED_STATES, LIVE_STATES

LIVE = frozenset(LIVE_STATES)
ENDED = frozenset(ENDED_STATES)

_UP = frozenset({"idle", "running", "waiting"})
_DOWN = frozenset({"stopping"}) | ENDED

NEXT: dict[str, frozenset[str]] = {
    "starting": _UP | _DOWN,
    "idle": _UP | _DOWN | {"sleeping", "restarting"},
    "running": _UP | _DOWN | {"restarting"},
    "waiting": _UP | _DOWN | {"restarting"},
    "sleeping": _UP | _DOWN | {"starting"},
    "restarting": _UP | _DOWN,
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
