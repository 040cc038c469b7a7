"""What a service manager hands the daemon (LISTEN_FDS) and wants to hear of it (sd_notify).

Without a manager there is nothing to take and nobody to tell. Never blocks, never ends the daemon.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time

from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError

_FIRST_FD = 3


def notify(state: str) -> None:
    """Tell the manager `state`, such as `READY=1`."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(bounds.NOTIFY_S)
        if address:
            sock.sendto(state.encode(), address)


def notify_reloading() -> None:
    """Until the next `READY=1`; the time tells the manager which of two reloads that ends."""
    notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")


def listen_fds() -> socket.socket | None:
    """The control socket as the manager has bound it, if this process was handed one.

    Takes the variables out of the environment: they are for nobody after us. Raises
    `SidecarError` for anything else than one listening Unix stream socket.
    """
    names = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
    pid, count, _ = (os.environ.pop(name, "") for name in names)
    if pid != str(os.getpid()):
        return None
    try:
        if count != "1":
            raise OSError(f"{count!r} descriptors")
        os.set_inheritable(_FIRST_FD, False)
        listener = socket.socket(fileno=_FIRST_FD)
        kind = (listener.family, listener.type)
        if kind != (socket.AF_UNIX, socket.SOCK_STREAM) or not _listens(listener):
            raise OSError(f"{listener}")
    except OSError as error:
        raise SidecarError(
            "invalid_params",
            f"LISTEN_FDS brings {error}, not one listening Unix stream socket",
            "one ListenStream= with a path in the socket unit",
        ) from error
    listener.setblocking(False)
    return listener


def _listens(sock: socket.socket) -> bool:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) != 0
