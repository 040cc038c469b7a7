"""The worker as a fresh interpreter: `python -m session_worker FD`, FD being its link."""

import os
import socket
import sys

from sidecar.protocol import prctl

if __name__ == "__main__":
    # before the slow imports: a spare that is dismissed meanwhile must take us with it
    prctl.die_with_parent(os.getppid())
    from session_worker.worker import run_worker

    run_worker(socket.socket(fileno=int(sys.argv[1])))
