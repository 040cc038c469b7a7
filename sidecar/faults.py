"""Fault points: where a test may have the daemon die, as the kernel would have it die."""

from __future__ import annotations

import os
import signal

VARIABLE = "SIDECAR_FAULT"
"""Names the one point that kills; set by tests only, read from the daemon's own environment."""

POINTS = (
    "record_written",
    "sockets_bound",
    "shim_forked",
    "identity_written",
    "specification_sent",
    "session_ready",
    "end_wanted",
    "stop_sent",
)


def reach(point: str) -> None:
    """SIGKILL ourselves if `point` is the one asked for."""
    if os.environ.get(VARIABLE) == point:
        os.kill(os.getpid(), signal.SIGKILL)
