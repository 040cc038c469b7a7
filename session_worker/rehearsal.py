"""A session played through in the zygote, so that no worker pays for what it builds and imports.

Compiled routes, lazily imported back ends and specialised bytecode are then in the image that is
forked: 10 ms and 2 MB of every worker else, and twice that of its first prompt.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from session_worker.http.app import build_app
from session_worker.spec import SessionSpec
from session_worker.worker import serve, set_up_log
from sidecar.protocol import bounds

_TIMES = 9
"""The interpreter specialises what has run eight times (PEP 659): in a worker, that is a write to
pages it shares."""
_PROMPT = (
    b'{"agent_name":"sidecar","mode":"stream",'
    b'"input":[{"role":"user","parts":[{"content":"hello there"}]}]}'
)
CHECK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_REQUESTS = (
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    b"POST /runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(_PROMPT), _PROMPT)
)


def rehearse() -> None:
    """Leaves no thread, no descriptor and no file."""
    set_up_log()
    for _ in range(_TIMES):
        with directory() as place:
            asyncio.run(_play(place))


@contextmanager
def directory() -> Generator[Path]:
    """For a session of ours. SIGTERM has to wait until it is gone again."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        # not TMPDIR, which may be too long for a socket's path
        with TemporaryDirectory(prefix="sc-", dir="/tmp") as path:
            yield Path(path)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


async def _play(place: Path) -> None:
    link, theirs = socket.socketpair()
    with link, theirs, socket.socket(socket.AF_UNIX) as listener:
        endpoint = place / "endpoint"
        listener.bind(str(endpoint))
        listener.listen()
        spec = SessionSpec.from_wire(specification(place))
        async with asyncio.timeout(bounds.ZYGOTE_READY_S), asyncio.TaskGroup() as group:
            serving = group.create_task(serve(spec, build_app(), theirs, [listener]))
            reader, writer = await asyncio.open_unix_connection(endpoint)
            writer.write(_REQUESTS)
            answers = await reader.read()
            writer.close()
            serving.cancel()
    if b"run.completed" not in answers:
        raise RuntimeError(f"the rehearsal went wrong: {answers[-1000:]}")


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
        "places": {name: str(place / name) for name in ("model", "transcript", "ring", "spill")},
        "provider_env": {},
        "tool_env": {},
    }
