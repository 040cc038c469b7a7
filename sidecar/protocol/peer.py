"""Who is at the other end of a Unix socket that we accepted."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from sidecar.protocol.process_tree import start_ticks

_LOCAL_PEERCRED = 1
SHIM_NAME = "sidecar-shim"
"""Of the process that everything a session starts is below."""


def is_ours(connection: socket.socket) -> bool:
    """True when the peer runs as our own effective user.

    Only meaningful on the accepting side: with a pre-bound socket the connecting side would see
    whoever called `listen`, not whoever serves (supervision.md §b).
    """
    if sys.platform == "linux":
        return _credentials(connection)[1] == os.geteuid()
    raw = connection.getsockopt(0, _LOCAL_PEERCRED, struct.calcsize("2I"))
    return struct.unpack("2I", raw)[1] == os.geteuid()


def peer_pid(connection: socket.socket) -> int:
    """The process that connected. Linux only."""
    return _credentials(connection)[0]


def is_process(connection: socket.socket, pid: int, started: int) -> bool:
    """True when that very process connected; `started` are its `start_ticks`. Linux only."""
    try:
        return peer_pid(connection) == pid and start_ticks(pid) == started
    except ProcessLookupError:
        return False


def is_of_a_session(connection: socket.socket, beside: int) -> bool:
    """True when the peer was started by a session's agent, which must not answer its own questions
    nor make itself another session. Also true for a peer that is gone: nobody can tell any more.

    A session that the process `beside` is itself in does not count, as when Sidecar is developed
    with Sidecar. Linux only; elsewhere always False. What has another daemon start a process for
    it is not found: the user id is no boundary (docs/security.md).
    """
    if sys.platform != "linux":
        return False
    pid = _credentials(connection)[0]
    if pid == 0:
        return False  # of a pid namespace around ours: nothing of ours gets there
    if not Path(f"/proc/{pid}").exists():
        return True
    outer = set(_ancestors(beside))
    return any(_name(above) == SHIM_NAME for above in _ancestors(pid) if above not in outer)


def _credentials(connection: socket.socket) -> tuple[int, int, int]:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", raw)


def _ancestors(pid: int) -> Iterator[int]:
    """Its parent first. Ends early when one of them is gone."""
    while pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return
        pid = int(stat.rpartition(")")[2].split()[1])
        yield pid


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
