"""A session played through in the zygote, so that no worker pays for what it builds and imports.

Compiled routes, lazily imported back ends and specialised bytecode are then in the image that is
forked: 10 ms and 2 MB of every worker else, and twice that of its first prompt.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from session_worker import child
from session_worker.grants import Grants
from session_worker.http.app import build_app
from session_worker.layout import gather_code
from session_worker.shim import Shim
from session_worker.spec import SessionSpec
from session_worker.standby import stand_by
from session_worker.worker import read_specification, serve, set_up_log
from session_worker.worker_start import fork_worker, hand_over, take_over
from sidecar.protocol import bounds
from sidecar.protocol.framing import encode

_TIMES = 9
"""The interpreter specialises what has run eight times (PEP 659): in a worker, that is a write to
pages it shares."""
_PROMPT = (
    b'{"agent_name":"sidecar","mode":"stream",'
    b'"input":[{"role":"user","parts":[{"content":"hello there"}]}]}'
)
_TMP = Path("/tmp")
"""Not TMPDIR, which may be too long for a socket's path."""
_PREFIX = "sidecar-rehearsal-"
_PLACES = (
    *("model", "transcript", "ring", "spill"),
    *("exit", "endpoint", "control", "worker_log"),
)
CHECK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_REQUESTS = (
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    b"POST /runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(_PROMPT), _PROMPT)
)


def rehearse() -> None:
    """Leaves no thread, no descriptor and no file. This process must have no other children."""
    set_up_log()
    _clear_up()
    _play()  # what is built and imported only when it is needed
    gather_code(_play)
    for _ in range(_TIMES):
        _play()


def _clear_up() -> None:
    """After those who were killed in a rehearsal; a young one may be of another container, where
    its pid is not ours."""
    oldest = time.time() - bounds.ZYGOTE_READY_S
    for path in _TMP.glob(f"{_PREFIX}*-*"):
        pid = path.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError):  # another one clears up, too
            left = path.lstat()
            ours = left.st_uid == os.geteuid() and left.st_mtime < oldest
            if ours and not Path("/proc", pid).exists():
                shutil.rmtree(path)


def _play() -> None:
    """A session: a fork, its worker's part, then its shim's."""
    with _as_before():
        gc.freeze()  # what is collected now leaves gaps, and a child would look through it all
        child.shed(keep={int(path.name) for path in Path("/dev/fd").iterdir()})
        gc.disable()
    with directory() as place, _as_before():
        asyncio.run(_work(place))
    with directory() as place, _as_before():
        _supervise(place)


@contextmanager
def _as_before() -> Generator[None]:
    """Undoes what a session does to its process: a SIGTERM that waits shall find us as we were."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGCHLD, signal.SIGTERM)}
    output = [os.dup(fd) for fd in range(3)]
    try:
        yield
    finally:
        for fd, copy in enumerate(output):
            os.dup2(copy, fd)
            os.close(copy)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def directory() -> Generator[Path]:
    """For a session of ours. SIGTERM has to wait until it is gone again."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        with TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", dir=_TMP) as path:
            yield Path(path)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


@contextmanager
def sockets(place: Path) -> Generator[tuple[socket.socket, socket.socket]]:
    """A session's endpoint and control socket."""
    with socket.socket(socket.AF_UNIX) as endpoint, socket.socket(socket.AF_UNIX) as control:
        for sock, name in ((endpoint, "endpoint"), (control, "control")):
            sock.bind(str(place / name))
            sock.listen()
        yield endpoint, control


async def _work(place: Path) -> None:
    link, theirs = socket.socketpair()
    with link, theirs, sockets(place) as (endpoint, _):
        hand_over(link, [endpoint], log=2)
        link.sendall(encode(specification(place)))
        with take_over(theirs)[0] as listener:
            spec = SessionSpec.from_wire(read_specification(theirs))
            async with asyncio.timeout(bounds.ZYGOTE_READY_S), asyncio.TaskGroup() as group:
                serving = group.create_task(serve(spec, build_app(), theirs, [listener]))
                reader, writer = await asyncio.open_unix_connection(endpoint.getsockname())
                writer.write(_REQUESTS)
                answers = await reader.read()
                writer.close()
                serving.cancel()
    if b"run.completed" not in answers:
        raise RuntimeError(f"the rehearsal went wrong: {answers[-1000:]}")


def _supervise(place: Path) -> None:
    """A worker that reports, and then has its session stopped, stands in for a real one."""
    daemon, link = socket.socketpair()
    requests, theirs = socket.socketpair()
    with daemon, requests, theirs:
        with link, sockets(place) as (endpoint, control):
            socket.send_fds(requests, [b"f"], Grants(endpoint, control, link, log=2).fds)
        daemon.sendall(encode({"op": "start", "spec": specification(place)}))
        grants = stand_by(theirs)
        assert grants is not None, "they have just been sent"
        grants.redirect_output()
        Shim(grants, lambda: fork_worker(_report, None)).serve()


def _report(link: socket.socket) -> None:
    take_over(link)
    link.recv(bounds.SHIM_LINE_BYTES)
    for state in ("idle", "running", "idle"):
        link.sendall(encode({"report": {"state": state, "model": None, "incarnation": 1}}))
    link.sendall(encode({"op": "stop", "grace_s": bounds.DESTROY_GRACE_DEFAULT_S}))
    while link.recv(1):  # until SIGTERM, or until the zygote is gone
        pass


def specification(place: Path) -> dict[str, Any]:
    return {
        "session_id": "rehearsal",
        "incarnation": 1,
        "restart_reason": None,
        "idle_timeout_s": 0,
        "cwd": str(place),
        "model": None,
        "system": None,
        "max_turns": 1,
        "max_tokens": 1,
        "mode": "ask",
        "ring_bytes": bounds.RING_MIN_BYTES,
        "limits": {},
        "cgroup": None,
        "tcp": None,
        "parent": None,
        "deny": [],
        "control_socket": str(place / "control"),
        "prices": {},
        "permissions": {
            "headless": "deny",
            "headless_after_s": 0,
            "additional_dirs": [],
            "layers": [{"source": name, "deny": [], "ask": [], "allow": []} for name in "ab"],
            "hooks": [],
        },
        "mcp_servers": {},
        "ptc_profile": None,
        "client_terminal": False,
        "sandbox": {"level": "none", "require": False, "network": False},
        "web_fetch": {"allow_private": []},
        "private": {name: str(place / name) for name in ("runtime", "state", "config")},
        "places": {name: str(place / name) for name in _PLACES},
        "provider_env": {},
        "tool_env": {},
    }
