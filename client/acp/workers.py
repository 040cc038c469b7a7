"""One session's worker, as the bridge talks to it: a WebSocket on its Unix socket.

A connection that ends fails what was asked over it and nothing else; the next message for the
session makes another one. Nothing is ever sent twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from client.acp import messages
from client.acp.ids import AgentIds
from client.acp.messages import CANCEL_REQUEST, INTERNAL_ERROR, Json, Refused, key_of, params_of
from client.acp.sessions import NoDaemon
from client.errors import ConnectionLost, EndpointRefusal, Unreachable
from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.framing import encode
from sidecar.protocol.session_info import SessionInfo

if TYPE_CHECKING:
    import aiohttp

ATTACHING = frozenset({"session/new", "session/load", "session/resume"})
INBOX = 64
"""Messages that may wait for a worker, which takes them at once unless it is just starting."""
MESSAGE_BYTES = 64 * bounds.MIB
"""Longest message of a worker: no event is longer than a quarter of the largest ring."""
CLOSE_S = 0.3
"""A worker says goodbye within this, or we leave without it."""
_OURS = "sidecarctl"
"""Id of what we ask a worker ourselves. Numbers are more usual among editors."""


class Worker:
    """`serve` is its life, `put` what is asked of it, `send` takes lines for the editor."""

    def __init__(
        self,
        session_id: str,
        info: SessionInfo | None,
        locate: Callable[[str], Awaitable[SessionInfo]],
        initialize: Json,
        agent_ids: AgentIds,
        send: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """Where it is says `info`, if known, else `locate`; `initialize` are params."""
        self.session_id = session_id
        self._info = info
        self._locate = locate
        self._initialize = initialize
        self._agent_ids = agent_ids
        self._send = send
        self._inbox: asyncio.Queue[tuple[Json, str]] = asyncio.Queue(INBOX)
        self._asked: dict[str, Any] = {}
        """The ids of the editor's requests that wait for an answer, by their keys."""
        self._settled = asyncio.Event()

    def put(self, message: Json, text: str) -> None:
        """A message of the editor for this session, and its text. Raises `Refused`."""
        try:
            self._inbox.put_nowait((message, text))
        except asyncio.QueueFull:
            raise Refused(INTERNAL_ERROR, f"{INBOX} messages wait for this session") from None
        if "method" in message and "id" in message:
            self._asked[key_of(message["id"])] = message["id"]

    def was_asked(self, request_id: Any) -> bool:
        return key_of(request_id) in self._asked

    async def settle(self) -> None:
        """Cancel what runs, and wait until everything that was asked is answered."""
        if not self._asked:
            return
        cancel = messages.notification("session/cancel", {"sessionId": self.session_id}).decode()
        self._settled.clear()
        with suppress(Refused, TimeoutError):
            self.put(json.loads(cancel), cancel)
            async with asyncio.timeout(bounds.CANCEL_S):
                await self._settled.wait()

    async def serve(self) -> None:
        """Ends when there is no such session. Raises `NoDaemon`, and what `send` raises."""
        while True:
            message, text = await self._inbox.get()
            try:
                await self._reach(message, text)
            except SidecarError as error:
                await self._fail(messages.refusal(error))
                if isinstance(error, NoDaemon):
                    raise
                if error.code == "session_not_found":
                    return

    async def _reach(self, message: Json, text: str) -> None:
        """A conversation where the worker was last, else, if it has moved or ended, where the
        daemon says. Always raises."""
        with suppress(Unreachable):
            if self._info is not None:
                await self._converse(self._info, message, text)
        self._info = await self._locate(self.session_id)
        await self._converse(self._info, message, text)

    async def _converse(self, info: SessionInfo, message: Json, text: str) -> None:
        """One connection, from the message that needs it to its end. Always raises `SidecarError`;
        if that is `Unreachable`, nothing was sent."""
        greeting = [messages.request(_OURS, "initialize", self._initialize)]
        if message["method"] not in ATTACHING:
            params: Json = {"sessionId": info["session_id"], "cwd": info["cwd"], "mcpServers": []}
            greeting.append(messages.request(_OURS, "session/resume", params))
        async with _dial(info) as socket:
            for line in greeting:
                await socket.send_str(line.decode())
            async with _beside(self._write(socket, text)):
                async for frame in socket:
                    if isinstance(frame.data, str):
                        await self._heard(frame.data)
        raise ConnectionLost(
            f"session {info['name']} closed the connection; what it was asked may have been done",
            f"sidecarctl session show {info['session_id']}",
        )

    async def _write(self, socket: aiohttp.ClientWebSocketResponse, text: str) -> None:
        # that it broke is told by the reader, which still delivers what was said before
        with suppress(ConnectionError):
            while True:
                await socket.send_str(text)
                _, text = await self._inbox.get()

    async def _heard(self, text: str) -> None:
        """Hand on what a worker says, word for word except for the ids of its requests."""
        try:
            message = messages.parse(text)
        except Refused:
            raise ConnectionLost("the session's worker said what is no message") from None
        line = text.replace("\n", " ").encode() + b"\n"
        method, request_id = message.get("method"), message.get("id")
        if method is None:
            if self._asked.pop(key_of(request_id), None) is None:
                return
            if not self._asked:
                self._settled.set()
        elif "id" in message:
            number = self._agent_ids.number(self.session_id, request_id)
            line = encode(message | {"id": number})
        elif method == CANCEL_REQUEST:
            params = params_of(message)
            number = self._agent_ids.open_number(self.session_id, params.get("requestId"))
            if number is None:
                return
            line = encode(message | {"params": params | {"requestId": number}})
        await self._send(line)

    async def _fail(self, reason: Refused) -> None:
        """Answer what was asked, and withdraw what the worker had asked."""
        asked, self._asked = self._asked, {}
        withdrawn = self._agent_ids.forget(self.session_id)  # before an answer can come for them
        while not self._inbox.empty():
            self._inbox.get_nowait()
        self._settled.set()
        for request_id in asked.values():
            await self._send(messages.refuse(request_id, reason))
        for number in withdrawn:
            await self._send(messages.notification(CANCEL_REQUEST, {"requestId": number}))


@asynccontextmanager
async def _dial(info: SessionInfo) -> AsyncGenerator[aiohttp.ClientWebSocketResponse]:
    """A WebSocket to the worker's /acp. A worker that is just starting lets us wait."""
    import aiohttp

    where = info["endpoint"]
    headers = {"Authorization": f"Bearer {where['token']}"} if where["token"] else None
    waits = aiohttp.ClientTimeout(total=None, sock_connect=bounds.CONNECT_S)
    closing = aiohttp.ClientWSTimeout(ws_close=CLOSE_S)  # pyright: ignore[reportCallIssue]
    connector = aiohttp.UnixConnector(where["socket"])
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=waits) as http:
            async with asyncio.timeout(bounds.SESSION_START_S):
                socket = await http.ws_connect(
                    "http://localhost/acp",
                    headers=headers,
                    timeout=closing,
                    max_msg_size=MESSAGE_BYTES,
                )
            async with socket:
                yield socket
    except aiohttp.ClientConnectorError as error:
        raise Unreachable(
            f"session {info['name']} does not answer at {where['socket']}",
            f"sidecarctl session show {info['session_id']}",
        ) from error
    except aiohttp.WSServerHandshakeError as error:
        raise EndpointRefusal(
            error.status, "server_error", f"session {info['name']} answered {error.status}"
        ) from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ConnectionLost(
            f"lost session {info['name']}: {error or 'it fell silent'}",
            f"sidecarctl session show {info['session_id']}",
        ) from error


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """`work` for as long as this is open. What goes wrong in either ends both."""
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            yield
            task.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
