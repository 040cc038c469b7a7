"""The library: `async with Sidecar.connect() as sidecar:` and what can be done from there."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from client.connection import Connection
from client.launch import ensure_daemon
from client.session import Session
from client.settings import find_env_file, session_env
from sidecar.protocol import bounds, methods
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.events import Envelope
from sidecar.protocol.paths import places
from sidecar.protocol.session_info import SessionInfo


class CreateParams(TypedDict, total=False):
    """What `session.create` takes beside `cwd`; what is left out has the daemon's default."""

    name: str
    model: str
    system: str
    max_turns: int
    max_tokens: int
    mode: str
    mcp_servers: dict[str, Any]
    env: dict[str, str]
    limits: dict[str, float]
    """`memory_bytes`, `processes`, `cpu_s`; `tokens` and `cost_usd` of all model calls together."""
    ring_bytes: int
    idle_timeout_s: float
    programmatic_tools: bool
    tcp: bool
    client_id: str
    parent: str
    deny: list[str]


class Sidecar:
    """The daemon: one method for each row of `sidecar.protocol.methods`, same parameters.

    All raise `SidecarError`. A lost connection is opened again by the next call, but no call is
    ever repeated. Sessions are named by id, unique prefix or name.
    """

    def __init__(self, connection: Connection, socket: Path, start: bool) -> None:
        self._connection = connection
        self._socket = socket
        self._start = start
        self._opening = asyncio.Lock()

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(
        cls, socket: Path | None = None, *, start: bool = True
    ) -> AsyncGenerator[Sidecar]:
        """The daemon at `socket`, else this user's, which is started if need be and `start`.

        Raises `Unreachable`, `PlaceError`.
        """
        start = start and socket is None
        socket = socket or places(os.environ).control_socket
        sidecar = cls(await _open(socket, start), socket, start)
        try:
            yield sidecar
        finally:
            await sidecar._connection.close()

    async def create(self, cwd: str | Path, **params: Unpack[CreateParams]) -> Session:
        """A new session; its endpoint answers when this returns.

        Without `env` it gets what `sidecarctl` would send: our provider variables, our PATH and
        the `.env` file beside the configuration.
        """
        if "env" not in params:
            env_file = find_env_file(None, places(os.environ).config.parent)
            params["env"] = session_env((), env_file, os.environ)
        info = await self._call("session.create", {"cwd": str(Path(cwd).absolute()), **params})
        return Session(self, info)

    async def session(self, session_id: str) -> Session:
        """A session that exists already."""
        return Session(self, cast(SessionInfo, await self.status(session_id)))

    async def status(self, session_id: str) -> dict[str, Any]:
        """SessionInfo with `resources`, `ring` and `usage`."""
        return await self._call("session.status", {"session_id": session_id})

    async def statuses(self, *, all: bool = False) -> list[dict[str, Any]]:
        """`status` of each session that `list` names, but of those that are gone by then."""
        asked = (self.status(info["session_id"]) for info in await self.list(all=all))
        found: list[dict[str, Any]] = []
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, dict):
                found.append(answer)
            elif not isinstance(answer, SidecarError) or answer.code != "session_not_found":
                raise answer
        return found

    async def list(self, *, all: bool = False, state: str | None = None) -> list[SessionInfo]:
        """Every live session, with `all` the ended ones too, newest first."""
        params: dict[str, Any] = {"all": all} | ({"state": state} if state else {})
        sessions: list[SessionInfo] = []
        while True:
            page = await self._call("session.list", params)
            sessions += page["sessions"]
            if page["next_cursor"] is None:
                return sessions
            params["cursor"] = page["next_cursor"]

    async def destroy(
        self,
        session_id: str,
        *,
        grace_s: float = bounds.DESTROY_GRACE_DEFAULT_S,
        purge: bool = False,
    ) -> SessionInfo:
        """End a session and its whole process tree; with `purge` its files go too."""
        params = {"session_id": session_id, "grace_s": grace_s, "purge": purge}
        return await self._call("session.destroy", params)

    async def resume(self, session_id: str, env: dict[str, str] | None = None) -> Session:
        """An ended session up again from its transcript; without `env` as for `create`."""
        if env is None:
            env = session_env((), find_env_file(None, places(os.environ).config.parent), os.environ)
        params = {"session_id": session_id, "env": env}
        return Session(self, await self._call("session.resume", params))

    async def rename(self, session_id: str, name: str) -> SessionInfo:
        return await self._call("session.rename", {"session_id": session_id, "name": name})

    async def output(self, session_id: str, **params: Any) -> dict[str, Any]:
        """`{events, last_seq, gap}` from the ring file, also of an ended session."""
        return await self._call("session.output", {"session_id": session_id, **params})

    async def subscribe(self, session_id: str, after: int = 0) -> AsyncGenerator[Envelope]:
        """A session's events through the daemon: wakes no sleeper, ends with the daemon."""
        params = {"session_id": session_id, "after": after}
        async with contextlib.aclosing(self._follow("session.subscribe", params)) as pushed:
            async for method, params in pushed:
                if method == methods.SESSION_EVENT:
                    yield params["event"]

    async def changes(self) -> AsyncGenerator[dict[str, Any]]:
        """`{session_id, state, …}` whenever a session changes (`sidecar.subscribe`)."""
        async with contextlib.aclosing(self._follow("sidecar.subscribe", {})) as pushed:
            async for method, params in pushed:
                if method == methods.SESSION_CHANGED:
                    yield params

    async def daemon_status(self) -> dict[str, Any]:
        return await self._call("sidecar.status")

    async def ping(self) -> None:
        await self._call("sidecar.ping")

    async def shutdown(self, *, stop_sessions: bool = False, drain_s: float = 0) -> None:
        """Stop the daemon and see it go. Sessions live on, unless `stop_sessions`."""
        import psutil  # for whoever only lists sessions it would be the slowest import

        from client.process import until_gone

        daemon = psutil.Process((await self.daemon_status())["pid"])
        params = {"stop_sessions": stop_sessions, "drain_s": drain_s}
        await self._call("sidecar.shutdown", params, bounds.CALL_S + drain_s)
        try:
            await until_gone([daemon], bounds.DAEMON_EXIT_S)
        except TimeoutError:
            raise SidecarError(
                "timed_out",
                f"the daemon (pid {daemon.pid}) accepted to stop, but has not ended",
                f"kill {daemon.pid}; sessions live on",
            ) from None

    async def _call(
        self, method: str, params: dict[str, Any] | None = None, timeout_s: float = bounds.CALL_S
    ) -> Any:
        async with self._opening:
            if self._connection.lost:
                await self._connection.close()
                self._connection = await _open(self._socket, self._start)
        return await self._connection.call(method, params, timeout_s)

    async def _follow(
        self, method: str, params: dict[str, Any]
    ) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
        # a connection of its own: whoever reads slowly then holds up nobody else
        connection = await Connection.open(self._socket)
        try:
            await connection.call(method, params)
            async for notification in connection.notifications():
                yield notification
        finally:
            await connection.close()


async def _open(socket: Path, start: bool) -> Connection:
    return await (ensure_daemon(os.environ) if start else Connection.open(socket))
