"""What an editor asks of sessions and only the daemon can do: make, find, list and end them.

The daemon is sought when it is first needed, and started as by any other command.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, cast

from client.acp.messages import INVALID_PARAMS, Json, Refused
from client.api import CreateParams, Sidecar
from sidecar.protocol import mcp_bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.methods import ENDED_STATES
from sidecar.protocol.session_info import SessionInfo

_NOT_IN_NAMES = re.compile(r"[\x00-\x20\x7f/]")
PAGE = 100
"""Sessions of one answer to session/list: some 30 KB."""


class NoDaemon(SidecarError):
    """The daemon was never reached; without it nothing can be done here."""


class Sessions:
    """Raises `SidecarError`, and `Refused` for params that make no sense.

    Editors name sessions by their whole id only: a name or a prefix is a person's shorthand, and
    one that is not meant so must not end another session.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Sidecar]],
        defaults: CreateParams,
        pinned: str | None,
    ) -> None:
        """`pinned` names the session that `new` finds instead of making one."""
        self._connect = connect
        self._defaults = defaults
        self._pinned = pinned
        self._sidecar: Sidecar | None = None
        self._connecting = asyncio.Lock()
        self._connected = AsyncExitStack()

    async def __aenter__(self) -> Sessions:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connected.aclose()

    async def new(self, params: Json) -> SessionInfo:
        """A session for the params of session/new."""
        servers = servers_of(params)
        cwd = params.get("cwd")
        if not isinstance(cwd, str) or not Path(cwd).is_absolute():
            raise Refused(INVALID_PARAMS, "cwd is the absolute path of a directory")
        sidecar = await self._daemon()
        if self._pinned is not None:
            return await self._up(await sidecar.status(self._pinned))
        wanted = self._defaults.copy()
        wanted["mcp_servers"] = servers
        return (await sidecar.create(cwd, **wanted)).info

    async def find(self, session_id: str) -> SessionInfo:
        """A session that exists, up again if it had ended."""
        return await self._up(await self._exactly(session_id))

    async def page(self, params: Json) -> Json:
        """The result of session/list."""
        found = await (await self._daemon()).list(all=True)
        return list_page([info for info in found if not info["parent"]], params)

    async def end(self, session_id: str, *, purge: bool) -> None:
        """End a session, if it has not; its transcript stays unless `purge`."""
        await self._exactly(session_id)
        await (await self._daemon()).destroy(session_id, purge=purge)

    async def _exactly(self, session_id: str) -> dict[str, Any]:
        status = await (await self._daemon()).status(session_id)
        if status["session_id"] != session_id:
            raise SidecarError("session_not_found", f"no session {session_id!r}", "session/list")
        return status

    async def _up(self, status: dict[str, Any]) -> SessionInfo:
        if status["state"] not in ENDED_STATES:
            return cast(SessionInfo, status)
        return (await (await self._daemon()).resume(status["session_id"])).info

    async def _daemon(self) -> Sidecar:
        async with self._connecting:
            if self._sidecar is None:
                try:
                    self._sidecar = await self._connected.enter_async_context(self._connect())
                except SidecarError as error:
                    raise NoDaemon(error.code, error.message, error.hint, **error.data) from error
            return self._sidecar


def servers_of(params: Json) -> dict[str, Any]:
    """The `mcpServers` of session/new as the daemon takes them. Raises `Refused` for what is no
    list of servers; what is wrong with one of them, the daemon says. People give them names that
    are more than one word."""
    given: Any = params.get("mcpServers") or []
    servers: dict[str, Any] = {}
    for item in cast("list[Any]", given) if isinstance(given, list) else [None]:
        server: Json = dict(cast(Json, item)) if isinstance(item, dict) else {}
        name = server.pop("name", None)
        if not isinstance(name, str):
            raise Refused(INVALID_PARAMS, "mcpServers is a list of servers, each with its name")
        server.pop("_meta", None)
        name = _NOT_IN_NAMES.sub("_", name)[: mcp_bounds.MCP_NAME_CHARS]
        if name in servers:
            raise Refused(INVALID_PARAMS, f"mcpServers: two of them would be called {name}")
        for pairs in ("env", "headers"):
            if pairs in server:
                server[pairs] = _as_object(name, server[pairs])
        servers[name] = server
    return servers


def _as_object(name: str, pairs: Any) -> dict[str, Any]:
    """`[{"name", "value"}]`, as ACP-C has variables and headers."""
    try:
        return {pair["name"]: pair["value"] for pair in pairs}
    except (TypeError, KeyError):
        raise Refused(
            INVALID_PARAMS, f"mcpServers: env and headers of {name} are lists of name and value"
        ) from None


def list_page(sessions: list[SessionInfo], params: Json) -> Json:
    """The page of session/list after `cursor`, newest session first, of `cwd` only if given.
    Raises `Refused`."""
    cwd, cursor = params.get("cwd"), params.get("cursor")
    if not isinstance(cwd, str | None) or not isinstance(cursor, str | None):
        raise Refused(INVALID_PARAMS, "cwd and cursor are strings")
    wanted = [s for s in sessions if cwd is None or Path(s["cwd"]) == Path(cwd)]
    if cursor is not None:
        wanted = [s for s in wanted if _position(s) < cursor]
    result: Json = {"sessions": [_listed(s) for s in wanted[:PAGE]]}
    if len(wanted) > PAGE:
        result["nextCursor"] = _position(wanted[PAGE - 1])
    return result


def _listed(info: SessionInfo) -> Json:
    return {
        "sessionId": info["session_id"],
        "cwd": info["cwd"],
        "title": info["name"],
        "updatedAt": info["last_active_at"],
    }


def _position(info: SessionInfo) -> str:
    return f"{info['created_at']}/{info['session_id']}"
