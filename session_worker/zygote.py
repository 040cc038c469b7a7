"""The zygote: one thread, no event loop, every import paid; then only `recvmsg`, `fork`.

It forks ahead: a shim with its worker always waits, and a request is handed on to them. The two
forks and what they copy are two thirds of a create.

Started by the daemon as `python -m session_worker.zygote FD`; FD is a stream socket. A request
is one byte with the descriptors of `Grants`; the answer is a line: `{"pid": n}`, or
`{"error": text}` and the daemon takes the exec path. It holds no secrets and no open files.
Importing the Anthropic SDK alone takes over a second and 85 MB: paid here once, shared by all.
"""

from __future__ import annotations

import gc

gc.disable()  # before the imports: garbage collected now would be pages copied in every fork

import contextlib  # noqa: E402
import logging  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import sys  # noqa: E402

from session_worker import child, layout, oom, prefault, worker_start  # noqa: E402
from session_worker.grants import Grants  # noqa: E402
from session_worker.rehearsal import directory, rehearse  # noqa: E402
from session_worker.standby import be_shim, stand_by  # noqa: E402
from session_worker.worker import run_worker  # noqa: E402
from sidecar.protocol import prctl  # noqa: E402
from sidecar.protocol.framing import encode  # noqa: E402

_Waiting = tuple[int, socket.socket]
"""Pid of a shim without a session, and our end of its socket."""


def main() -> None:
    """Serve fork requests until the daemon closes the socket."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    prctl.set_name("sidecar-zygote")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps dead shims
    try:
        rehearse()
    except* Exception:
        logging.exception("no rehearsal, for instance on a full disk: workers start slower")
    layout.fill_gaps()
    gc.freeze()  # saves ~50 MB and a ~100 ms pause in every worker (supervision.md §a)
    with contextlib.suppress(OSError):  # then each page is copied when its turn comes
        _learn_what_is_written()
    requests.sendall(encode(child.hello()))
    waiting = _fork_ahead()
    while True:
        byte, fds, _, _ = socket.recv_fds(requests, 1, Grants.COUNT)
        if not byte:
            return  # closes its end of the waiting one's socket, too
        requests.sendall(encode(_hand_on(waiting or _fork_ahead(), fds)))
        for fd in fds:
            os.close(fd)
        waiting = _fork_ahead()


def _learn_what_is_written() -> None:
    with directory() as place:
        if first := _fork_ahead(outlives_us=False):
            with first[1]:
                prefault.learn(place, *first)


def _fork_ahead(*, outlives_us: bool = True) -> _Waiting | None:
    """A shim with its worker that waits for a session; None where none can be made."""
    if child.count_threads() != 1:
        return None
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            parent = None if outlives_us else os.getpid()
            return child.fork(lambda: _wait(theirs, parent), keep={theirs.fileno()}), ours
        except OSError:
            ours.close()
            return None


def _hand_on(waiting: _Waiting | None, fds: list[int]) -> dict[str, object]:
    """The answer to a request with `fds`."""
    if waiting is None:
        return {"error": f"no fork with {child.count_threads()} threads, or none to be had"}
    pid, link = waiting
    with link:
        try:
            socket.send_fds(link, [b"f"], fds)
        except OSError as error:
            return {"error": f"the shim that waited is gone: {error}"}
    return {"pid": pid}


def _work(link: socket.socket) -> None:
    prefault.populate(prefault.by_worker)
    run_worker(link)


def _wait(requests: socket.socket, parent: int | None) -> None:
    if parent is not None:
        prctl.die_with_parent(parent)
    os.setsid()
    os.chdir("/")
    prctl.set_name("sidecar-spare")
    score = oom.own_score()
    ahead = worker_start.fork_worker(_work, score)
    grants = stand_by(requests)
    requests.close()
    if grants is not None:
        be_shim(grants, ahead, lambda: worker_start.fork_worker(_work, score))


if __name__ == "__main__":
    main()
