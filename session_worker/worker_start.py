"""How a shim starts its worker: by fork from its own image, or by exec where fork is unsafe.

Either way the worker gets one descriptor, its link to the shim. The listening socket and the
specification follow over it (`hand_over`, then one line), so both paths are one protocol.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable

from session_worker import child, oom

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


def hand_over(link: socket.socket, listener: socket.socket, log: int) -> None:
    """Pass the listening socket and where output goes; the socket stays open here, so that clients
    queue while no worker runs."""
    socket.send_fds(link, [b"\n"], [listener.fileno(), log])


def take_over(link: socket.socket) -> socket.socket:
    """The worker's side of `hand_over`; blocks until the shim has a session for us.

    Raises SystemExit when the shim left without one: a spare that nobody needed.
    """
    _, fds, _, _ = socket.recv_fds(link, 1, 2)
    if not fds:
        raise SystemExit(0)
    listener, log = fds
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    return socket.socket(fileno=listener)
