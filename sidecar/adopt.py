"""What a starting daemon makes of a session it finds on disk. The verdict is pure."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    ADOPT = "adopt"
    """The shim runs: take the session over as it is."""
    FINISH_STOP = "finish_stop"
    """The shim runs, and a stop had begun: end it."""
    ENDED = "ended"
    """There is an exit record: show it as what it became."""
    LOST = "lost"
    """Its shim is gone without a word."""
    FORGET = "forget"
    """Nothing was ever started: the create was cut off before its spawn."""


def judge(*, wanted: str, spawned: bool, alive: bool, exited: bool) -> Verdict:
    """`spawned`: the record names a shim. `alive`: that very process runs. `exited`: it wrote
    `exit.json`. A shim that runs but is slow to answer is not a dead one."""
    if exited:
        return Verdict.ENDED
    if not spawned:
        return Verdict.FORGET
    if not alive:
        return Verdict.LOST
    return Verdict.FINISH_STOP if wanted == "down" else Verdict.ADOPT
