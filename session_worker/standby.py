"""A shim before it has a session: its worker is started ahead, so that both wait for a create
instead of a create for them. Forked by a zygote, or a spare of the exec path.
"""

from __future__ import annotations

import socket

from session_worker import child
from session_worker.grants import Grants
from session_worker.shim import Shim
from session_worker.worker_start import StartWorker


def stand_by(requests: socket.socket) -> Grants | None:
    """Wait for the one request, a byte with descriptors; None if nobody will send it any more."""
    byte, fds, _, _ = socket.recv_fds(requests, 1, Grants.COUNT)
    return Grants.from_fds(fds) if byte else None


def be_shim(grants: Grants, ahead: tuple[int, socket.socket], start_worker: StartWorker) -> None:
    """Be the shim until the session has ended. The worker started `ahead` is its first, should it
    still live."""
    grants.redirect_output()
    Shim(grants, lambda: ahead if child.is_running(ahead[0]) else start_worker()).run()
