"""One connected server, by way of the MCP library. Imported only when there is a server to start:
the library takes a second to import.

A client must be entered and left in the same task, a server's owner; calls may come from any.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

from mcp import Client, MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    Implementation,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from session_worker.mcp_servers.oauth import sign_in
from session_worker.mcp_servers.remote import http_transport
from session_worker.mcp_servers.stdio import stdio_transport
from session_worker.mcp_servers.tail import Tail
from session_worker.tools.truncate import clean
from sidecar.protocol import VERSION, mcp_bounds
from sidecar.protocol.bounds import BASH_WATCH_S, ERROR_TEXT_CHARS
from sidecar.protocol.mcp import Settings
from sidecar.protocol.process_tree import SESSION_COOKIE

ENVIRONMENT = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")
"""What a stdio server gets of the session's, its own `env` aside."""


class CallFailed(Exception):
    """Why there is no result. `lost` says that the connection may be gone."""

    def __init__(self, why: str, *, lost: bool = False) -> None:
        super().__init__(why)
        self.lost = lost


@contextlib.asynccontextmanager
async def stdio_client(
    settings: Settings,
    cwd: Path,
    environ: Mapping[str, str],
    stderr: Tail,
    on_end: Callable[[str], None],
    on_change: Callable[[], None],
) -> AsyncGenerator[Client]:
    env = {name: environ[name] for name in ENVIRONMENT if name in environ} | settings.env
    env |= {SESSION_COOKIE: environ[SESSION_COOKIE]} if SESSION_COOKIE in environ else {}
    argv = [settings.command or "", *settings.args]
    transport = stdio_transport(argv, cwd / (settings.cwd or ""), env, stderr, on_end)
    async with _client(transport, on_change) as client:
        yield client


@contextlib.asynccontextmanager
async def http_client(
    settings: Settings,
    state: Path,
    on_address: Callable[[str], None],
    on_status: Callable[[int], None],
    on_change: Callable[[], None],
) -> AsyncGenerator[Client]:
    """Who has no Authorization header of their own is asked to sign in if the server wants it."""
    url = settings.url or ""
    own = any(name.lower() == "authorization" for name in settings.headers)
    auth = None if own else sign_in(url, state, on_address)
    transport = http_transport(url, settings.headers, auth, on_status)
    async with _client(transport, on_change) as client:
        yield client


@contextlib.asynccontextmanager
async def _client(transport: Any, on_change: Callable[[], None]) -> AsyncGenerator[Client]:
    """Of either protocol: one tells of changed tools unasked, the other (2026) if asked."""

    async def on_message(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            on_change()

    info = Implementation(name="sidecar", version=VERSION)
    async with Client(
        transport, message_handler=on_message, client_info=info, cache=None
    ) as client:
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            yield client
            return
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(_listen(client, on_change))
            try:
                yield client
            finally:
                listening.cancel()


async def _listen(client: Client, on_change: Callable[[], None]) -> None:
    capabilities = client.server_capabilities.tools
    if capabilities is None or not capabilities.list_changed:
        return
    while True:
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    on_change()
        except MCPError as error:
            if error.code != CONNECTION_CLOSED:
                return  # it has no such thing
        except SubscriptionLost:
            pass
        await asyncio.sleep(mcp_bounds.MCP_RELISTEN_S)
        on_change()  # what was missed meanwhile


async def list_tools(client: Client) -> list[dict[str, Any]]:
    """All tools as they come over the wire. Raises TimeoutError, `MCPError`, and ValueError for a
    list without an end."""
    tools: list[dict[str, Any]] = []
    if client.server_capabilities.tools is None:
        return tools
    cursor, seen = None, set[str]()
    async with asyncio.timeout(mcp_bounds.MCP_LIST_S):
        while True:
            page = await client.list_tools(cursor=cursor, cache_mode="bypass")
            tools += (tool.model_dump(mode="json", by_alias=True) for tool in page.tools)
            cursor = page.next_cursor
            if cursor is None:
                return tools
            if cursor in seen or len(seen) == mcp_bounds.MCP_LIST_PAGES:
                raise ValueError("its list of tools has no end")
            seen.add(cursor)


async def call_tool(
    client: Client,
    tool: str,
    arguments: dict[str, Any],
    timeout_s: float,
    on_progress: Callable[[str], None],
) -> dict[str, Any]:
    """The result as it comes over the wire. Raises `CallFailed`.

    Progress gives the call another `timeout_s`, up to MCP_CALL_MAX_S in all. A call that is given
    up, by us or by its caller, is cancelled at the server; the connection stays. `on_progress` gets
    its words, at most one line per BASH_WATCH_S.
    """
    try:
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:  # a hook's change; it would end the whole connection
        raise CallFailed("half a character or no number is in its input") from None
    loop = asyncio.get_running_loop()
    last, told = loop.time() + mcp_bounds.MCP_CALL_MAX_S, -math.inf
    deadline = asyncio.timeout(timeout_s)

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # the call has just ended
            deadline.reschedule(min(last, loop.time() + timeout_s))
        nonlocal told
        if loop.time() - told >= BASH_WATCH_S:
            told = loop.time()
            text = message or f"{progress:g}" + (f"/{total:g}" if total else "")
            on_progress(clean(text)[: mcp_bounds.MCP_PROGRESS_CHARS] + "\n")

    try:
        async with deadline:
            result = await client.call_tool(tool, arguments, progress_callback=progressed)
    except TimeoutError:
        spent = "" if deadline.when() != last else f", {mcp_bounds.MCP_CALL_MAX_S:g} s in all"
        raise CallFailed(f"no answer and no progress for {timeout_s:g} s{spent}") from None
    except MCPError as error:
        lost = error.code in (CONNECTION_CLOSED, INVALID_REQUEST)
        raise CallFailed(error.message[:ERROR_TEXT_CHARS], lost=lost) from None
    except (RuntimeError, ValidationError) as error:  # what it did is done
        why = str(error)[:ERROR_TEXT_CHARS]
        raise CallFailed(f"the call was made, but its answer makes no sense: {why}") from None
    return result.model_dump(mode="json", by_alias=True)
