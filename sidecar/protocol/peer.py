"""Who is at the other end of a Unix socket that we accepted."""

from __future__ import annotations

import os
import socket
import struct
import sys

_LOCAL_PEERCRED = 1


def is_ours(connection: socket.socket) -> bool:
    """True when the peer runs as our own effective user.

    Only meaningful on the accepting side: with a pre-bound socket the connecting side would see
    whoever called `listen`, not whoever serves (supervision.md §b).
    """
    if sys.platform == "linux":
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        uid = struct.unpack("3i", raw)[1]
    else:
        raw = connection.getsockopt(0, _LOCAL_PEERCRED, struct.calcsize("2I"))
        uid = struct.unpack("2I", raw)[1]
    return uid == os.geteuid()
