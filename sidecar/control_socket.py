"""Taking a Unix socket path for ourselves, without ever stealing it from a living owner."""

from __future__ import annotations

import fcntl
import os
import socket
import sys
from pathlib import Path

from sidecar.protocol.errors import SidecarError
from sidecar.protocol.paths import Places


def take_lock(places: Places) -> int:
    """Be the one daemon of this runtime directory; the descriptor holds the lock until closed.

    The file is never unlinked: a second daemon could lock the new one beside us. Raises
    `SidecarError` (`forbidden`) while another daemon runs.
    """
    fd = os.open(places.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise SidecarError(
            "forbidden",
            f"a daemon already runs for {places.runtime} (pid {owner})",
            "sidecarctl daemon stop, or another SIDECAR_HOME",
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def listen(path: Path, backlog: int) -> socket.socket:
    """A listening socket at `path`, mode 0600 (macOS: the 0700 directory guards it), in the place
    of a stale one.

    Bound aside and renamed, so that no client ever meets a path without a listener. The caller
    holds the right to `path`: the daemon's lock, or a session id of its own.
    """
    aside = path.with_name(path.name[:8] + ".new")
    aside.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if sys.platform == "linux":
            os.fchmod(sock.fileno(), 0o600)  # before bind: no moment with a wider mode
        sock.bind(str(aside))
        sock.listen(backlog)
        aside.rename(path)
    except BaseException:
        sock.close()
        aside.unlink(missing_ok=True)
        raise
    sock.setblocking(False)
    return sock
