"""What the callers of `session_worker.mcp_servers` are to it, and the stub as a server."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from session_worker.mcp_servers.approval import Approvals
from session_worker.mcp_servers.configuration import parse_server
from session_worker.mcp_servers.server import Place
from session_worker.mcp_servers.servers import Servers
from session_worker.tools.spec import Shell, ToolContext, ToolResult
from tests.support import mcp_stub

WAIT_S = 30.0
"""For what comes true in moments on an idle machine."""
STUB = [str(mcp_stub.__file__)]


def stub(mode: str = "", **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [*STUB, *mode.split()], **more}


class Session:
    """What the package's callers are: a group of tasks, a directory, ears for changes."""

    def __init__(self, tmp_path: Path, source: Any, raw: dict[str, Any]) -> None:
        self.changes: list[tuple[list[str], list[str]]] = []
        self.output: list[str] = []
        self.dir = tmp_path
        environ = {"PATH": os.environ["PATH"], "SIDECAR_SESSION": "s", "SECRET": "s3cret"}
        self.place = Place(tmp_path, environ, tmp_path, Approvals(tmp_path, tmp_path))
        entries = [parse_server(name, each, source) for name, each in raw.items()]
        self.servers = Servers(entries, self.place, (), lambda *each: self.changes.append(each))

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        emit, spill = self.output.append, self.dir / "spill"
        context = ToolContext("id", self.dir, Shell(self.dir), {}, spill, emit)
        return await self.servers.call(name, arguments, context)

    async def text(self, name: str, **arguments: Any) -> str:
        result = await self.call(name, **arguments)
        assert not result.is_error, result.content
        return cast(str, result.content)

    def status(self, name: str = "a") -> dict[str, Any]:
        return next(each for each in self.servers.status() if each["name"] == name)

    def names(self) -> list[str]:
        return [tool.name for tool in self.servers.tools()]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def until_state(self, state: str, name: str = "a") -> None:
        await self.until(lambda: self.status(name)["state"] == state)


@asynccontextmanager
async def running(tmp_path: Path, source: str = "user", **raw: Any) -> AsyncIterator[Session]:
    session = Session(tmp_path, source, raw)
    async with asyncio.TaskGroup() as group:

        async def live() -> None:
            async with asyncio.TaskGroup() as owners:
                session.servers.start(owners)

        living = group.create_task(live())
        try:
            yield session
        finally:
            living.cancel()
