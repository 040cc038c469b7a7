"""Starting the daemon: detached from us, and with none of our secrets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from client.connection import Connection
from client.errors import ConnectionLost, Unreachable
from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.paths import Places, ensure_private_dir, places

START_POLL_S = 0.02
"""Between two attempts to reach a daemon that is starting, which takes some 0.1 s."""


def daemon_command() -> list[str]:
    """argv of a daemon in the foreground. `-P`: no module of a working directory gets in."""
    return [sys.executable, "-P", "-m", "sidecar"]


def daemon_env(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without provider variables: one shell's key must not become every session's."""
    return {
        name: value
        for name, value in environ.items()
        if not (name.startswith("ANTHROPIC_") or name == "MODEL_ID")
    }


async def ensure_daemon(environ: Mapping[str, str]) -> Connection:
    """A connection to the daemon of `environ`'s places, started now if need be.

    Several starters may race: one daemon gets the lock, the others end, and all starters are
    served by the one. Raises `SidecarError` (`start_failed`) with the end of its log.
    """
    where = places(environ)
    with contextlib.suppress(Unreachable):
        return await Connection.open(where.control_socket)
    ensure_private_dir(where.runtime)
    ensure_private_dir(where.state)
    log_began = where.daemon_log.stat().st_size if where.daemon_log.exists() else 0
    daemon, outrun = _spawn(where, environ), False
    deadline = time.monotonic() + bounds.DAEMON_START_S
    while time.monotonic() < deadline:
        try:
            connection = await _answering(where.control_socket)
        except (Unreachable, ConnectionLost):
            await asyncio.sleep(START_POLL_S)
        else:
            if _lock_owner(where) != daemon.pid:
                daemon.terminate()  # else, if that one stops soon, ours would take its place
            return connection
        if daemon.poll() is None:
            continue
        if _lock_owner(where):
            outrun = True
        elif outrun:  # by one that was on its way out
            daemon, outrun = _spawn(where, environ), False
        else:
            break
    with where.daemon_log.open("rb") as log:
        end = log.seek(0, os.SEEK_END)
        began = log_began if log_began <= end else 0  # rotated meanwhile
        log.seek(max(began, end - bounds.LOG_TAIL_BYTES))
        tail = log.read().decode(errors="replace")
    raise SidecarError(
        "start_failed",
        "the daemon did not start",
        "sidecarctl daemon start --foreground",
        log_tail=tail,
    )


async def _answering(socket: Path) -> Connection:
    connection = await Connection.open(socket)
    try:
        await connection.call("sidecar.ping", timeout_s=bounds.CONNECT_S)
    except BaseException:
        await connection.close()
        raise
    return connection


def _spawn(where: Places, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    log = os.open(where.daemon_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        daemon = subprocess.Popen(
            daemon_command(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=daemon_env(environ),
            start_new_session=True,
        )
    finally:
        os.close(log)
    # so that it leaves no zombie when it ends before us
    threading.Thread(target=daemon.wait, daemon=True).start()
    return daemon


def _lock_owner(where: Places) -> int | None:
    """The daemon that holds the lock, if it lives; read, not tried: trying could win it."""
    try:
        pid = int(where.lock.read_text(encoding="ascii"))
        os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    return pid
