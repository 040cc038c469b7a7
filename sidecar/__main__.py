"""`sidecard`: the daemon's process. Stopping it ends no session."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path

from sidecar.config import Config, load
from sidecar.control_socket import listen, take_lock
from sidecar.handlers import build
from sidecar.protocol import VERSION, bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.framing import encode
from sidecar.protocol.methods import SESSION_CHANGED
from sidecar.protocol.paths import Places, ensure_private_dir, places
from sidecar.server import ControlServer
from sidecar.session import Session
from sidecar.supervisor import Supervisor

MISUSED = 2
FAILED = 1


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="sidecard",
        description="Supervise AI agent sessions, each in a process of its own.",
        epilog="Sessions outlive this process. Environment: SIDECAR_HOME.",
    )
    parser.add_argument("--version", action="version", version=f"sidecar {VERSION}")
    parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        where = places(os.environ)
        ensure_private_dir(where.runtime)
        lock = take_lock(where)
        config = load(where.config)
    except SidecarError as error:
        print(f"sidecard: {error.message}\ntry: {error.hint}", file=sys.stderr)  # noqa: T201
        sys.exit(FAILED if error.code == "forbidden" else MISUSED)
    try:
        asyncio.run(_serve(where, config))
    finally:
        os.close(lock)


class _Stop(Exception):
    """Ends the daemon's task group; its tasks are cancelled, the sessions are not its tasks."""


async def _serve(where: Places, config: Config) -> None:
    loop = asyncio.get_running_loop()
    os.umask(0o077)
    try:
        async with asyncio.TaskGroup() as tasks:
            supervisor = Supervisor(where, config, tasks)
            server = ControlServer(build(supervisor))
            supervisor.on_change = lambda session: _announce(server, session)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, supervisor.stop_asked.set)
            loop.add_signal_handler(signal.SIGCHLD, supervisor.forkers.reap)
            await supervisor.start()
            listener = listen(where.control_socket, bounds.CONTROL_BACKLOG)
            inode = where.control_socket.stat().st_ino
            tasks.create_task(server.serve(listener))
            logging.info("pid %d listens on %s", os.getpid(), where.control_socket)
            await supervisor.stop_asked.wait()
            _unlink_if_ours(where.control_socket, inode)
            raise _Stop
    except* _Stop:
        logging.info("stopped; sessions that were live go on")


def _unlink_if_ours(path: Path, inode: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_ino == inode:
            path.unlink()


def _announce(server: ControlServer, session: Session) -> None:
    line = encode({"jsonrpc": "2.0", "method": SESSION_CHANGED, "params": session.info()})
    for connection in server.connections:
        if connection.wants_changes:
            connection.offer(line)


if __name__ == "__main__":
    main()
