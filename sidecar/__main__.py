"""`sidecard`: the daemon's process. Stopping it ends no session."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from sidecar import cgroups, log, systemd
from sidecar.config import Config, load
from sidecar.control_socket import listen, take_lock
from sidecar.handlers import build
from sidecar.protocol import VERSION, bounds, prctl
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
    os.umask(0o077)
    try:
        inherited = systemd.listen_fds()
        where = places(os.environ)
        ensure_private_dir(where.runtime)
        lock = take_lock(where)
        config = load(where.config)
    except SidecarError as error:
        print(f"sidecard: {error.message}\ntry: {error.hint}", file=sys.stderr)  # noqa: T201
        sys.exit(FAILED if error.code == "forbidden" else MISUSED)
    log.set_up(where.daemon_log, bounds.DAEMON_LOG_BYTES, bounds.DAEMON_LOGS_KEPT)
    prctl.become_subreaper()  # before the first child: what a dead shim leaves comes to us
    try:
        asyncio.run(_serve(where, config, inherited))
    finally:
        os.close(lock)


class _Stop(Exception):
    """Ends the daemon's task group; its tasks are cancelled, the sessions are not its tasks."""


async def _serve(where: Places, config: Config, inherited: socket.socket | None) -> None:
    """Until told to stop. An `inherited` listener is its manager's: its path outlives us."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.TaskGroup() as tasks:
            supervisor = Supervisor(where, config, tasks, cgroups.claim())
            server = ControlServer(build(supervisor), supervisor.sessions.of_worker)
            supervisor.on_change = lambda session: _announce(server, session)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, supervisor.stop_asked.set)
            hang_up = _on_hang_up(where, supervisor, server.serving)
            loop.add_signal_handler(signal.SIGHUP, hang_up)
            loop.add_signal_handler(signal.SIGCHLD, supervisor.forkers.reap)
            await supervisor.start()
            listener = inherited or listen(where.control_socket, bounds.CONTROL_BACKLOG)
            inode = None if inherited else where.control_socket.stat().st_ino
            tasks.create_task(server.serve(listener))
            await server.serving.wait()
            address = listener.getsockname() if inherited else where.control_socket
            logging.info("pid %d listens on %s", os.getpid(), address)
            systemd.notify("READY=1")
            while not await _happens(supervisor.stop_asked, bounds.FILES_CHECK_S):
                if inode is not None and not _is_at(where.control_socket, inode):
                    # nobody reaches us any more, and the next daemon is free to start
                    logging.error("%s is gone", where.control_socket)
                    break
            systemd.notify("STOPPING=1")
            if inode is not None and _is_at(where.control_socket, inode):
                where.control_socket.unlink(missing_ok=True)
            raise _Stop
    except* _Stop:
        logging.info("stopped; sessions that were live go on")


def _on_hang_up(
    where: Places, supervisor: Supervisor, serving: asyncio.Event
) -> Callable[[], None]:
    """What SIGHUP does: reload the settings, or stop with the terminal that is gone."""
    had_terminal = os.isatty(0)

    def act() -> None:
        if had_terminal and not os.isatty(0):
            supervisor.stop_asked.set()
            return
        systemd.notify_reloading()
        try:
            supervisor.reconfigure(load(where.config))
            logging.info("settings reloaded")
        except SidecarError as error:
            logging.error("the settings stay as they were: %s", error.message)
        if serving.is_set():
            systemd.notify("READY=1")

    return act


async def _happens(event: asyncio.Event, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            return await event.wait()
    except TimeoutError:
        return False


def _is_at(path: Path, inode: int) -> bool:
    try:
        return path.stat().st_ino == inode
    except FileNotFoundError:
        return False


def _announce(server: ControlServer, session: Session) -> None:
    line = encode({"jsonrpc": "2.0", "method": SESSION_CHANGED, "params": session.info_for_many()})
    for connection in server.connections:
        if connection.wants_changes:
            connection.offer(line)


if __name__ == "__main__":
    main()
