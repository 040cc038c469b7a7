"""`sidecarctl acp`, top to bottom: what an editor asks, and where it goes.

What the daemon knows is answered here; everything about one session goes to its worker as it
came. Nothing that happens to one session reaches another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from client.acp import initialize, messages
from client.acp.ids import AgentIds
from client.acp.messages import Json, Refused, params_of
from client.acp.sessions import NoDaemon, Sessions
from client.acp.stdio import LINE_BYTES, Stdio
from client.acp.workers import Worker
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.framing import encode
from sidecar.protocol.session_info import SessionInfo

LEAVE_S = 0.3
"""After the end of stdin the daemon may still answer what it was asked; sessions go on anyway."""
SHOWN_CHARS = 80
"""Of a name that an editor made up, in the message that refuses it."""


async def serve(stdio: Stdio, sessions: Sessions) -> None:
    """Until stdin ends. Raises `NoDaemon`, and ConnectionError once nobody reads stdout."""
    try:
        async with asyncio.TaskGroup() as tasks:
            bridge = _Bridge(stdio, sessions, tasks)
            async for line in stdio.lines():
                await bridge.take(line)
            await bridge.leave()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


class _Bridge:
    """`tasks` is the parent of the workers' connections, and of what the daemon is asked."""

    def __init__(self, stdio: Stdio, sessions: Sessions, tasks: asyncio.TaskGroup) -> None:
        self._send = stdio.send
        self._sessions = sessions
        self._tasks = tasks
        self._initialize = initialize.for_worker({})
        self._agent_ids = AgentIds()
        self._workers: dict[str, Worker] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._answering: set[asyncio.Task[None]] = set()

    async def take(self, line: bytes | None) -> None:
        """One line of the editor; None for one too long."""
        try:
            if line is None:
                raise Refused(messages.INVALID_REQUEST, f"longer than {LINE_BYTES} bytes")
            message = messages.parse(line)
        except Refused as refused:
            await self._send(messages.refuse(None, refused))
            return
        try:
            await self._route(message, line.decode().strip())
        except Refused as refused:
            if "method" in message and "id" in message:
                await self._send(messages.refuse(message["id"], refused))

    async def _route(self, message: Json, text: str) -> None:
        """Raises `Refused`."""
        params = params_of(message)
        session_id = params.get("sessionId")
        match message.get("method"):
            case None:
                self._answered(message)
            case "initialize":
                self._initialize = initialize.for_worker(params)
                await self._send(messages.answer(message.get("id"), initialize.AGENT))
            case "session/new":
                self._ask_daemon(message, self._new(message, text))
            case "session/list":
                self._ask_daemon(message, self._sessions.page(params))
            case "session/close":
                self._ask_daemon(message, self._end(_string(session_id), purge=False))
            case "session/delete":
                self._ask_daemon(message, self._end(_string(session_id), purge=True))
            case "session/load" | "session/resume":
                self._worker(_string(session_id)).put(message, text)
            case messages.CANCEL_REQUEST:
                for worker in self._workers.values():
                    if worker.was_asked(params.get("requestId")):
                        worker.put(message, text)
            case _ if isinstance(session_id, str) and session_id in self._workers:
                self._workers[session_id].put(message, text)
            case method if session_id is None:
                shown = str(method)[:SHOWN_CHARS]
                raise Refused(messages.METHOD_NOT_FOUND, f"no method {shown!r} without a session")
            case _:
                shown = str(session_id)[:SHOWN_CHARS]
                raise Refused(messages.NOT_FOUND, f"no session {shown!r} is attached here")

    def _answered(self, message: Json) -> None:
        """The editor's answer to what a worker asked, under the worker's own id."""
        if asked := self._agent_ids.settle(message.get("id")):
            session_id, request_id = asked
            if worker := self._workers.get(session_id):
                answer = message | {"id": request_id}
                worker.put(answer, encode(answer).decode())

    def _worker(self, session_id: str, info: SessionInfo | None = None) -> Worker:
        """The one of this session, which is looked for when it has something to do."""
        if worker := self._workers.get(session_id):
            return worker
        worker = Worker(
            session_id, info, self._sessions.find, self._initialize, self._agent_ids, self._send
        )
        task = self._tasks.create_task(worker.serve())
        self._workers[session_id], self._serving[session_id] = worker, task
        task.add_done_callback(lambda ended: self._forget(session_id, ended))
        return worker

    def _forget(self, session_id: str, ended: asyncio.Task[None]) -> None:
        if self._serving.get(session_id) is ended:
            del self._workers[session_id], self._serving[session_id]

    async def _new(self, message: Json, text: str) -> None:
        info = await self._sessions.new(params_of(message))
        self._worker(info["session_id"], info).put(message, text)  # which answers it

    async def _end(self, session_id: str, *, purge: bool) -> Json:
        """session/close and session/delete, also of a session that nobody is attached to."""
        worker, task = self._workers.pop(session_id, None), self._serving.pop(session_id, None)
        try:
            if worker:
                await worker.settle()
            await self._sessions.end(session_id, purge=purge)
        finally:
            if task:
                task.cancel()
        return {}

    def _ask_daemon(self, message: Json, work: Coroutine[Any, Any, Json | None]) -> None:
        """Answer a request with what comes of `work`, while others are answered, too."""
        task = self._tasks.create_task(self._answer(message, work))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, message: Json, work: Coroutine[Any, Any, Json | None]) -> None:
        request_id = message.get("id")
        try:
            result = await work
            line = b"" if result is None else messages.answer(request_id, result)
        except Refused as refused:
            line = messages.refuse(request_id, refused)
        except SidecarError as error:
            line = messages.refuse(request_id, messages.refusal(error))
            if isinstance(error, NoDaemon):
                await self._send(line)
                raise
        if line and "id" in message:
            await self._send(line)

    async def leave(self) -> None:
        """Let go of every session."""
        if self._answering:
            await asyncio.wait(self._answering, timeout=LEAVE_S)
        for task in (*self._answering, *self._serving.values()):
            task.cancel()


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise Refused(messages.INVALID_PARAMS, "sessionId is a string")
    return value
