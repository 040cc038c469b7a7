"""One MCP server of a session: started, listed, called, and started again when it ends.

`run` is its owner task: it alone connects and disconnects, as the library demands that one task
does both. Whatever goes wrong stays in here: it becomes the state, and the result of a call.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from session_worker.mcp_servers.approval import Approvals, shown
from session_worker.mcp_servers.configuration import Entry, expand
from session_worker.mcp_servers.offered import Offered, offered_tools
from session_worker.mcp_servers.results import keep_in, to_result
from session_worker.mcp_servers.tail import Tail
from session_worker.tools.spec import ToolContext, ToolResult
from sidecar.protocol import mcp_bounds
from sidecar.protocol.bounds import ERROR_TEXT_CHARS
from sidecar.protocol.mcp import Settings

if TYPE_CHECKING:
    from mcp import Client

REFUSALS = (401, 403)
FAILED = 400
"""From this HTTP status on. 404 would say that a session is over; server-everything says 400."""
CONNECTION = "session_worker.mcp_servers.connection"
"""What imports the MCP library. It takes a second: first in a thread, and only where a server is
started; what names it after that finds it there."""

State = Literal["pending", "connecting", "connected", "failed", "disabled", "unauthorized"]
Wish = Literal["list", "restart", "over"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """Where a session's servers live: what `${VAR}` and their environment are taken from, where
    relative paths start, where tokens are kept, and what was approved."""

    cwd: Path
    environ: Mapping[str, str]
    state: Path
    approvals: Approvals


class Server:
    def __init__(self, entry: Entry, place: Place, on_change: Callable[[], None]) -> None:
        """`on_change` is called when its state or its tools are others, and never raises."""
        self.entry = entry
        self.state: State = "pending"
        self.reason = ""
        self.sign_in_at: str | None = None
        self.connector: Settings | None = None
        """Expanded, while the API is to connect to it."""
        self.tools: dict[str, Offered] = {}
        """By their own names; what a server offered last, while it is not there."""
        self.problems: list[str] = []
        self.info: dict[str, str] = {}
        self.settled = asyncio.Event()
        """Set while nothing is under way that could make it connected in a moment."""
        self._place = place
        self._on_change = on_change
        self._client: Client | None = None
        self._starting: asyncio.Timeout | None = None
        self._closing: asyncio.Timeout | None = None
        self._stderr = Tail()
        self._ended = ""
        self._refused = False
        self._there_since: float | None = None
        self._wishes: set[Wish] = set()
        self._wished = asyncio.Event()

    # --- the owner's task ------------------------------------------------------------------

    async def run(self) -> None:
        """Keep it connected until cancelled. Raises nothing else."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        failures, was_there = 0, False
        while True:
            while blocked := self._blocked():
                self._become("disabled", blocked)
                await self._wait_for("restart")
            self._become("connecting", self.reason)
            self._ended, self._refused, self._there_since = "", False, None
            try:
                await self._stay_connected()
                failures = 0
                continue
            except Exception as error:
                if task and task.cancelling():  # it failed while we were ending it
                    raise asyncio.CancelledError from error
                _logger.info("MCP server %s: %s", self.entry.name, type(error).__name__)
                if self._there_since is not None:
                    was_there = True
                    if loop.time() - self._there_since > mcp_bounds.MCP_STEADY_S:
                        failures = 0
                self._become("unauthorized" if self._refused else "failed", self._why(error))
            failures += 1
            if self._refused or (failures >= mcp_bounds.MCP_START_TRIES and not was_there):
                self.settled.set()
                await self._wait_for("restart")
                failures = 0
            else:
                pause = mcp_bounds.MCP_PAUSE_FIRST_S * 2 ** min(failures - 1, 10)
                await self._wait_for("restart", timeout_s=min(mcp_bounds.MCP_PAUSE_MAX_S, pause))

    def _blocked(self) -> str:
        """Why it must not be started."""
        if not self.entry.settings.enabled:
            return "not enabled"
        if not self._place.approvals.is_approved(self.entry):
            return "nobody has approved it"
        return ""

    async def _stay_connected(self) -> None:
        """Until a restart is wished for. Raises whatever ends it otherwise."""
        settings = expand(self.entry, self._place.environ)
        if settings.connector:
            self.connector = settings
            try:
                self._become("connected", "the API connects to it")
                await self._wait_for("restart")
                return
            finally:
                self.connector = None
        await asyncio.to_thread(importlib.import_module, CONNECTION)
        self._wishes.clear()
        startup_s = settings.startup_timeout_s
        async with (
            asyncio.timeout(startup_s + mcp_bounds.MCP_CLOSE_S) as self._closing,
            asyncio.timeout(startup_s) as self._starting,
            self._connect(settings) as client,
        ):
            try:
                await self._list(client)
                self.info = _identity(client)
                self._client, self._there_since = client, asyncio.get_running_loop().time()
                self._give(None)
                self._become("connected")
                await self._follow(client)
            finally:
                self._client = None
                if not self._starting.expired():
                    self._give(0, to_start=False)

    def _give(self, seconds: float | None, *, to_start: bool = True) -> None:
        """So much time from now on; None is any. Closing has MCP_CLOSE_S more."""
        now = asyncio.get_running_loop().time()
        assert self._starting and self._closing
        until = None if seconds is None else now + seconds
        self._starting.reschedule(until if to_start else None)
        self._closing.reschedule(None if until is None else until + mcp_bounds.MCP_CLOSE_S)

    def _connect(self, settings: Settings) -> AbstractAsyncContextManager[Client]:
        from session_worker.mcp_servers.connection import http_client, stdio_client

        def changed() -> None:
            self._wish("list")

        place = self._place
        if settings.is_http:
            return http_client(settings, place.state, self._ask_to_sign_in, self._answered, changed)
        return stdio_client(settings, place.cwd, place.environ, self._stderr, self._over, changed)

    async def _follow(self, client: Client) -> None:
        while True:
            match await self._wait_for("over", "restart", "list"):
                case "restart":
                    return
                case "over":
                    raise ConnectionError(self._ended)
                case _:
                    await self._list(client)
                    await asyncio.sleep(mcp_bounds.MCP_RELIST_S)

    async def _list(self, client: Client) -> None:
        from session_worker.mcp_servers.connection import list_tools

        listed = await list_tools(client)
        settings = self.entry.settings
        self.tools, self.problems = await asyncio.to_thread(offered_tools, listed, settings)
        self._on_change()

    async def _wait_for(self, *wishes: Wish, timeout_s: float | None = None) -> Wish | None:
        """The first of `wishes` that is there; None after `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while True:
                    for wish in wishes:
                        if wish in self._wishes:
                            self._wishes.remove(wish)
                            return wish
                    self._wished.clear()
                    await self._wished.wait()
        return None

    # --- what the connection tells ---------------------------------------------------------

    def _wish(self, wish: Wish) -> None:
        self._wishes.add(wish)
        self._wished.set()

    def _over(self, how: str) -> None:
        self._ended = how
        self._wish("over")

    def _answered(self, status: int) -> None:
        self._refused = status in REFUSALS
        if self.state == "unauthorized" and self._client and not self._refused:
            self._become("connected")
        if self._client and status >= FAILED and not self._refused:
            self._wish("list")  # which fails if it was started again and forgot its session

    def _ask_to_sign_in(self, address: str) -> None:
        self._become("unauthorized", "somebody has to sign in", sign_in_at=address)
        if self._client is None:
            self._give(mcp_bounds.MCP_SIGN_IN_S + self.entry.settings.startup_timeout_s)

    def _become(self, state: State, reason: str = "", sign_in_at: str | None = None) -> None:
        self.state, self.reason, self.sign_in_at = state, reason, sign_in_at
        if state in ("connected", "disabled", "unauthorized"):
            self.settled.set()
        elif state == "connecting" or self.entry.settings.required:
            self.settled.clear()
        self._on_change()

    def _why(self, error: Exception) -> str:
        while isinstance(error, ExceptionGroup):
            error = cast("ExceptionGroup[Exception]", error).exceptions[0]
        match error:
            case _ if self._ended:
                return self._ended
            case FileNotFoundError():
                return f"there is no {error.filename}"
            case TimeoutError() if self._there_since is None:
                return f"no answer within {self.entry.settings.startup_timeout_s:g} s"
            case TimeoutError():
                return "it could not be closed in time, or stopped answering"
            case _:
                return (str(error) or type(error).__name__)[:ERROR_TEXT_CHARS]

    # --- for everybody ---------------------------------------------------------------------

    async def wait_settled(self) -> None:
        """For as long as its first tries may take, at most."""
        startup_s = self.entry.settings.startup_timeout_s
        tries = mcp_bounds.MCP_START_TRIES
        pauses_s = sum(mcp_bounds.MCP_PAUSE_FIRST_S * 2**n for n in range(tries - 1))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(tries * (startup_s + mcp_bounds.MCP_CLOSE_S) + pauses_s):
                await self.settled.wait()

    def restart(self) -> None:
        """Soon; also of one that was given up, or has been approved meanwhile."""
        self._wish("restart")

    async def call(self, tool: str, arguments: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """Never raises but a cancellation, which cancels the call at the server, too."""
        name = self.entry.name
        if (offered := self.tools.get(tool)) is None:
            return _error(f"MCP server {name} offers no tool {tool!r} any more")
        if (client := self._client) is None:
            return _error(f"MCP server {name} is not there: {self._absence()}")
        from session_worker.mcp_servers.connection import CallFailed, call_tool

        timeout_s = self.entry.settings.timeout_s
        try:
            answer = await call_tool(client, tool, arguments, timeout_s, ctx.emit_output)
        except CallFailed as failed:
            if not failed.lost:
                return _error(f"MCP server {name}: {failed}")
            self._wish("list")  # which fails if it is gone
            why = self._absence() if self._ended else str(failed)
            return _error(f"MCP server {name}, outcome of the call unknown: {why}")
        return await asyncio.to_thread(to_result, answer, keep_in(ctx), offered.max_chars)

    def _absence(self) -> str:
        why = self._ended or self.reason or self.state
        lines = self._stderr.last_lines()
        return f"{why}. Its last words:\n{lines}" if lines else why

    def status(self) -> dict[str, Any]:
        """For people and programs. Of variables and headers only the names: values are secret."""
        entry, settings = self.entry, self.entry.settings
        awaits = not self._place.approvals.is_approved(entry)
        return {
            "name": entry.name,
            "source": entry.source,
            "transport": _transport(settings),
            "state": self.state,
            "reason": self.reason,
            "required": settings.required,
            "env": sorted(settings.env),
            "headers": sorted(settings.headers)
            + ["Authorization"] * (settings.authorization_token is not None),
            "server": self.info,
            "tools": sorted(self.tools),
            "problems": self.problems,
            "stderr": self._stderr.last_lines() if self.state == "failed" else "",
            "sign_in_at": self.sign_in_at,
            "approval": shown(entry) if awaits else None,
        }


def _identity(client: Client) -> dict[str, str]:
    info = client.server_info
    name, version = (info.name, info.version) if info else ("", "")
    return {"name": name, "version": version, "protocol": client.protocol_version}


def _transport(settings: Settings) -> str:
    return "connector" if settings.connector else "http" if settings.is_http else "stdio"


def _error(text: str) -> ToolResult:
    return ToolResult(text, is_error=True)
