"""All MCP servers of a session: what they offer as tools of ours, and what becomes of calls.

Made by whoever equips the session; the loop sees only the tools. Never waits for a server longer
than MCP_READY_S, unless the session cannot do without it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable
from typing import Any

from pydantic import RootModel

from session_worker.mcp_servers import names, schemas
from session_worker.mcp_servers.configuration import Entry
from session_worker.mcp_servers.connector import Connector, connector
from session_worker.mcp_servers.offered import Offered
from session_worker.mcp_servers.server import Place, Server
from session_worker.tools.spec import ToolContext, ToolResult, ToolSpec
from sidecar.protocol import mcp_bounds
from sidecar.protocol.mcp import Settings

_REMEDY = (
    "Correct what is wrong, then `sidecarctl mcp restart ID SERVER` (or `mcp approve`) and prompt "
    'again; without "required" the session would go on without them.'
)

OnChange = Callable[[list[str], list[str]], None]


class McpInput(RootModel[dict[str, Any]]):
    """The arguments of a call; what fits is the tool's own schema to say."""


class Servers:
    def __init__(
        self, entries: Iterable[Entry], place: Place, builtin: Collection[str], on_change: OnChange
    ) -> None:
        """`builtin` are names that no tool may get. `on_change` is told which names have become
        tools, and which are none any more; neither if only a state has changed. It never raises.
        """
        self._servers = {
            entry.name: Server(entry, place, self._changed)
            for entry in sorted(entries, key=lambda entry: entry.name)
        }
        self._place = place
        self._builtin = builtin
        self._on_change = on_change
        self._origins: dict[str, names.Origin] = {}
        self._current: dict[str, Offered] = {}
        self._told: set[str] = set()

    def __contains__(self, server: object) -> bool:
        return server in self._servers

    def start(self, group: asyncio.TaskGroup) -> None:
        """Their owner tasks; they end when the group's are cancelled."""
        for server in self._servers.values():
            group.create_task(server.run())

    async def wait_ready(self, on_wait: Callable[[str], None]) -> str:
        """Until all are connected or have failed, at most MCP_READY_S; for those that are required
        as long as their first tries may take, of which `on_wait` is told.

        Answers why a prompt cannot go on, and what to do; empty if it can.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(mcp_bounds.MCP_READY_S):
                for server in self._servers.values():
                    await server.settled.wait()
        for server in self.missing():
            if not server.settled.is_set():
                on_wait(server.entry.name)
                await server.wait_settled()
        missing = [f"{each.entry.name} is {each.state}: {each.reason}" for each in self.missing()]
        return f"MCP servers that are required: {'; '.join(missing)}. {_REMEDY}" if missing else ""

    def missing(self) -> list[Server]:
        """Those that are required and not there."""
        return [
            server
            for server in self._servers.values()
            if server.entry.settings.required
            and server.entry.settings.enabled
            and server.state != "connected"
        ]

    def tools(self) -> list[ToolSpec[McpInput]]:
        """By name. A server that is not there keeps its tools: calls say why they fail."""
        return [self._spec(name, offered) for name, offered in sorted(self._current.items())]

    def connector(self) -> Connector:
        """What requests carry for servers that the API connects to."""
        return connector(self._connected_elsewhere())

    async def call(self, name: str, arguments: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """`name` is one that was ever among `tools()`; else KeyError."""
        server, tool = self._origins[name]
        return await self._servers[server].call(tool, arguments, ctx)

    def restart(self, server: str) -> None:
        """Raises KeyError."""
        self._servers[server].restart()

    def approve(self, server: str, fingerprint: str) -> bool:
        """Approve what a person has seen, and start it; False if it is not that any more. Raises
        KeyError, `SidecarError`, OSError."""
        entry = self._servers[server].entry
        if entry.fingerprint != fingerprint:
            return False
        self._place.approvals.approve(entry)
        self.restart(server)
        return True

    def status(self) -> list[dict[str, Any]]:
        called = {origin: name for name, origin in self._origins.items()}
        return [
            status | {"tools": [called[status["name"], tool] for tool in status["tools"]]}
            for status in (server.status() for server in self._servers.values())
        ]

    def _changed(self) -> None:
        offered = {
            (server.entry.name, tool): each
            for server in self._servers.values()
            for tool, each in server.tools.items()
        }
        self._origins = names.assign(offered, self._origins, self._builtin)
        self._current = {
            name: offered[origin] for name, origin in self._origins.items() if origin in offered
        }
        there = {*self._current, *(f"{name}__*" for name in self._connected_elsewhere())}
        before, self._told = self._told, there
        self._on_change(sorted(there - before), sorted(before - there))

    def _connected_elsewhere(self) -> dict[str, Settings]:
        return {
            each.entry.name: each.connector for each in self._servers.values() if each.connector
        }

    def _spec(self, name: str, offered: Offered) -> ToolSpec[McpInput]:
        server, _ = self._origins[name]

        async def handler(params: McpInput, ctx: ToolContext) -> ToolResult:
            return await self.call(name, params.root, ctx)

        return ToolSpec(
            name=name,
            description=offered.description,
            params=McpInput,
            handler=handler,
            kind="other",
            read_only=offered.says_read_only and self._servers[server].entry.trusted,
            render=lambda _: f"{server}: {offered.title}",
            family="mcp",
            max_chars=mcp_bounds.MCP_TEXT_CHARS_MAX,
            input_schema=offered.schema,
            invalid=lambda params: schemas.misfit(offered.schema, params.root),
        )
