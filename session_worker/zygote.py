"""The zygote: one thread, no event loop, every import paid; then only `recvmsg`, `fork`.

Started by the daemon as `python -m session_worker.zygote FD`; FD is a stream socket. A request
is one byte with the descriptors of `Grants`; the answer is a line: `{"pid": n}`, or
`{"error": text}` and the daemon takes the exec path. It holds no secrets and no open files.
Importing the Anthropic SDK alone takes over a second and 85 MB: paid here once, shared by all.
"""

from __future__ import annotations

import gc

gc.disable()  # before the imports: garbage collected now would be pages copied in every fork

import logging  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import sys  # noqa: E402

from session_worker import child, oom, worker_start  # noqa: E402
from session_worker.grants import Grants  # noqa: E402
from session_worker.rehearsal import rehearse  # noqa: E402
from session_worker.shim import Shim  # noqa: E402
from session_worker.worker import run_worker  # noqa: E402
from sidecar.protocol import prctl  # noqa: E402
from sidecar.protocol.framing import encode  # noqa: E402

_gaps: list[bytes] = []
"""Fills the gaps in our pages. Objects of a child then lie together on pages of its own, instead
of each having a page of ours copied: 0.3 MB of every session."""
_GAPS = 400
"""Of each size; of most there were fewer (`sys._debugmallocstats`)."""
_SMALL_BYTES = 480
"""Objects of up to 512 bytes share pages with their like; 33 are the header of a `bytes`."""


def main() -> None:
    """Serve fork requests until the daemon closes the socket."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    prctl.set_name("sidecar-zygote")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps dead shims
    try:
        rehearse()
    except* Exception:
        logging.exception("no rehearsal, for instance on a full disk: workers start slower")
    _gaps.extend(bytes(size) for size in range(1, _SMALL_BYTES, 16) for _ in range(_GAPS))
    gc.freeze()  # saves ~50 MB and a ~100 ms pause in every worker (supervision.md §a)
    requests.sendall(encode(child.hello()))
    while True:
        byte, fds, _, _ = socket.recv_fds(requests, 1, Grants.COUNT)
        if not byte:
            return
        requests.sendall(encode(_fork_shim(fds)))
        for fd in fds:
            os.close(fd)


def _fork_shim(fds: list[int]) -> dict[str, object]:
    if child.count_threads() != 1:
        return {"error": f"{child.count_threads()} threads: fork is unsafe"}
    try:
        return {"pid": child.fork(lambda: _shim(fds), keep=set(fds))}
    except OSError as error:
        return {"error": str(error)}


def _shim(fds: list[int]) -> None:
    grants = Grants.from_fds(fds)
    grants.redirect_output()
    os.setsid()
    os.chdir("/")
    score = oom.own_score()
    Shim(grants, lambda: worker_start.fork_worker(run_worker, score)).run()


if __name__ == "__main__":
    main()
