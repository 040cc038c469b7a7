"""How a shim starts its worker: by fork from its own image, or by exec where fork is unsafe.

Either way the worker gets one descriptor, its link to the shim. The listening sockets and the
specification follow over it (`hand_over`, then one line), so both paths are one protocol.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable

from session_worker import child, oom

_LISTENERS_MAX = 2
"""Of one session: its Unix socket, and one on loopback if it was asked for."""
StartWorker = Callable[[], tuple[int, socket.socket]]
"""Starts a worker; answers its pid and the shim's end of its link. Raises OSError."""


def fork_worker(
    worker: Callable[[socket.socket], None], score: int | None
) -> tuple[int, socket.socket]:
    """A worker forked from this image, which must have one thread; `score` is our `oom` one."""
    ours, theirs = socket.socketpair()
    with theirs, oom.workers_first(score):
        pid = child.fork(lambda: worker(theirs), keep={theirs.fileno()})
    return pid, ours


def exec_worker(score: int | None) -> tuple[int, socket.socket]:
    """A fresh interpreter. It imports at once, and only then asks for its session."""
    ours, theirs = socket.socketpair()
    with theirs, oom.workers_first(score):
        theirs.set_inheritable(True)
        argv = [sys.executable, "-P", "-m", "session_worker", str(theirs.fileno())]
        pid = os.posix_spawn(sys.executable, argv, os.environ)
    return pid, ours


def hand_over(link: socket.socket, listeners: list[socket.socket], log: int) -> None:
    """Pass the listening sockets and where output goes; the sockets stay open here, so that clients
    queue while no worker runs."""
    socket.send_fds(link, [b"\n"], [log, *(listener.fileno() for listener in listeners)])


def take_over(link: socket.socket) -> list[socket.socket]:
    """The worker's side of `hand_over`; blocks until the shim has a session for us.

    Raises SystemExit when the shim left without one: a spare that nobody needed.
    """
    _, fds, _, _ = socket.recv_fds(link, 1, 1 + _LISTENERS_MAX)
    if not fds:
        raise SystemExit(0)
    log, *listeners = fds
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    return [socket.socket(fileno=listener) for listener in listeners]
