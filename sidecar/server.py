"""The control socket: connections, lines, replies, notifications.

A request is answered when it has finished, not in turn. A client that does not take its bytes
is dropped; nothing here ever waits for one without a bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from traceback import clear_frames
from typing import Any, cast

from sidecar import rpc
from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.framing import LineSplitter, LineTooLong, encode
from sidecar.protocol.peer import is_of_a_session, is_ours, peer_pid

log = logging.getLogger(__name__)


class Connection:
    """One client. Handlers get it as their context."""

    def __init__(
        self, writer: asyncio.StreamWriter, tasks: asyncio.TaskGroup, session_id: str | None
    ) -> None:
        """`session_id` is the session whose worker this is, None for everybody else."""
        self.session_id = session_id
        self._writer = writer
        self._tasks = tasks
        self._turn = asyncio.Lock()
        self.subscriptions: dict[str, asyncio.Task[None]] = {}
        self.wants_changes = False
        self.after_reply: Callable[[], None] | None = None
        """Run once the next reply is out: a shutdown is answered before it happens."""

    async def send(self, line: bytes) -> None:
        """Raises ConnectionError for a client that left or takes nothing."""
        async with self._turn:
            self._writer.write(line)
            del line  # a client that takes nothing is to cost one copy
            try:
                async with asyncio.timeout(bounds.CONTROL_WRITE_S):
                    await self._writer.drain()
            except TimeoutError:
                self._writer.transport.abort()
                raise ConnectionResetError("the client takes nothing") from None

    def offer(self, line: bytes) -> None:
        """Send if the client keeps up, else drop the line: for hints that repeat themselves."""
        if self._writer.transport.get_write_buffer_size() < bounds.NOTIFY_BACKLOG_BYTES:
            self._writer.write(line)

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` for as long as this connection lives."""
        return self._tasks.create_task(work)


class ControlServer:
    """Serves `methods` (walled handlers by name) on a listening socket."""

    def __init__(self, methods: Mapping[str, Any], of_worker: Callable[[int], str | None]) -> None:
        """`of_worker` names the session whose worker has a pid."""
        self._methods = methods
        self._of_worker = of_worker
        self.connections: set[Connection] = set()
        self.serving = asyncio.Event()
        self._conversations: set[asyncio.Task[Any]] = set()

    async def serve(self, listener: socket.socket) -> None:
        """Until cancelled; then every conversation ends."""
        server = await asyncio.start_server(self._on_connect, sock=listener)
        self.serving.set()
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            for conversation in self._conversations:
                conversation.cancel()
            if self._conversations:
                await asyncio.wait(self._conversations, timeout=bounds.DAEMON_EXIT_S)

    async def _on_connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation = asyncio.current_task()
        assert conversation is not None, "streams run this in a task"
        self._conversations.add(conversation)
        try:
            await self._admit(reader, writer)
        except asyncio.CancelledError:
            pass  # `serve` is ending; streams would report a cancelled callback as an error
        finally:
            self._conversations.discard(conversation)
            writer.close()

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            peer, session_id = writer.get_extra_info("socket"), None
            if not is_ours(peer):
                await self._turn_away(
                    reader, writer, "forbidden", "this daemon is another user's", "run your own"
                )
            elif (
                is_of_a_session(peer, beside=os.getpid())
                and (session_id := self._of_worker(peer_pid(peer))) is None
            ):
                await self._turn_away(
                    reader,
                    writer,
                    "forbidden",
                    "what a session's agent starts may not use the control plane",
                    "run it in a terminal of your own",
                )
            elif len(self.connections) >= bounds.CONTROL_CONNECTIONS:
                await self._turn_away(
                    reader, writer, "overloaded", "too many connections", "retry later"
                )
            else:
                await self._converse(reader, writer, session_id)
        except* (ConnectionError, TimeoutError) as left:
            _let_go(left)  # it left, or takes nothing
        except* Exception:
            log.exception("a control connection failed")

    async def _turn_away(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *error: str
    ) -> None:
        """A request left unread, or that cannot be written, would cost the client the refusal."""
        writer.write(encode(rpc.stream_refusal(SidecarError(*error))))
        writer.write_eof()
        async with asyncio.timeout(bounds.LAST_ANSWERS_S):
            while await reader.read(bounds.CONTROL_LINE_BYTES):
                pass

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session_id: str | None
    ) -> None:
        lines = LineSplitter(bounds.CONTROL_LINE_BYTES)
        free = asyncio.Semaphore(bounds.CONTROL_PENDING_REQUESTS)
        async with asyncio.TaskGroup() as subscriptions:
            connection = Connection(writer, subscriptions, session_id)
            self.connections.add(connection)
            try:
                # a client may close its side after the last request and still read the replies
                async with asyncio.TaskGroup() as requests:
                    while chunk := await reader.read(64 * bounds.KIB):
                        for line in lines.feed(chunk):
                            if line.strip():
                                await free.acquire()
                                requests.create_task(self._reply(connection, line, free))
            except* LineTooLong:
                await connection.send(encode(rpc.stream_refusal(LineTooLong(lines.limit))))
                await self._skip_line(reader)
            finally:
                self.connections.discard(connection)
                for task in connection.subscriptions.values():
                    task.cancel()

    async def _skip_line(self, reader: asyncio.StreamReader) -> None:
        """Take the rest of an overlong line: a close with bytes unread would destroy our answer
        on its way to the client."""
        async with asyncio.timeout(bounds.CONTROL_WRITE_S):
            while (chunk := await reader.read(64 * bounds.KIB)) and b"\n" not in chunk:
                pass

    async def _reply(self, connection: Connection, line: bytes, free: asyncio.Semaphore) -> None:
        try:
            try:
                value: Any = json.loads(line.decode("utf-8"))
            except (ValueError, RecursionError):
                reply: rpc.Reply = rpc.parse_refusal()
            else:
                reply = await rpc.answer(value, self._methods, connection)
            if reply is not None:
                with contextlib.suppress(ConnectionError):
                    await connection.send(encode(reply))
            if connection.after_reply is not None:
                connection.after_reply()
        finally:
            free.release()


def _let_go(error: BaseException) -> None:
    """A task group and its errors hold each other, and with them all that was to be sent."""
    clear_frames(error.__traceback__)
    if isinstance(error, BaseExceptionGroup):
        for one in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            _let_go(one)
