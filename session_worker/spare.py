"""The exec path: a fresh interpreter that becomes one session's shim.

Started by the daemon as `python -m session_worker.spare FD`, where no zygote may fork (macOS, a
second thread, a zygote that is still importing). It starts its worker before it is asked for a
session, so that a waiting spare has the imports behind it. FD speaks the zygote's protocol,
for one request.
"""

from __future__ import annotations

import os
import socket
import sys

from session_worker import child, oom, worker_start
from session_worker.standby import be_shim, stand_by
from sidecar.protocol.framing import encode


def main() -> None:
    """Wait for the one request, then be the shim until the session has ended."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    os.chdir("/")
    os.umask(0o077)
    score = oom.own_score()
    ahead = worker_start.exec_worker(score)
    requests.sendall(encode(child.hello()))
    grants = stand_by(requests)
    if grants is None:
        return
    requests.sendall(encode({"pid": os.getpid()}))
    requests.close()
    be_shim(grants, ahead, lambda: worker_start.exec_worker(score))


if __name__ == "__main__":
    main()
