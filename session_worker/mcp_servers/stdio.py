"""A stdio server as a process of ours, and the MCP library's streams to and from it.

Not the library's own `stdio_client`, for what was seen of it: children inherit the worker's umask
of 077, cost a thread each on 3.11, one line of 20 MiB takes nine seconds (it is copied for each
chunk), stray output is logged with traceback and content, and a server that is dead while a child
of its holds its stdout is not noticed. Imported only when there is a server to start.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from session_worker import oom
from session_worker.mcp_servers.lines import Lines, TooLong
from session_worker.mcp_servers.tail import Tail
from session_worker.tools import process
from sidecar.protocol import mcp_bounds

Inbound = MemoryObjectReceiveStream[SessionMessage | Exception]
Outbound = MemoryObjectSendStream[SessionMessage]


@contextlib.asynccontextmanager
async def stdio_transport(
    argv: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    stderr: Tail,
    on_end: Callable[[str], None],
) -> AsyncGenerator[tuple[Inbound, Outbound]]:
    """The streams of a started server, which leads a process group; on leaving it is ended.

    `on_end` is told when the server ends, or closes its output, and how. Raises OSError if it
    cannot be started.
    """
    child = _start(argv, cwd, env)
    try:
        oom.child_goes_first(child.pid)
        async with _pipes(child, stderr) as (stdin, stdout), asyncio.TaskGroup() as group:
            arriving, inbound = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            outbound, leaving = anyio.create_memory_object_stream[SessionMessage](0)
            reading = group.create_task(_read(stdout, arriving))
            exiting = group.create_task(_exit(child))

            async def watch() -> None:
                await asyncio.wait((reading, exiting), return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait((reading, exiting), timeout=mcp_bounds.MCP_LAST_WORDS_S)
                on_end(_how_it_ended(child.poll()))
                arriving.close()

            tasks = (reading, exiting, group.create_task(watch()))
            tasks += (group.create_task(_write(leaving, stdin)),)
            try:
                yield inbound, outbound
            finally:
                stdin.close()
                inbound.close()  # reading goes on: a server that cannot write does not end
                with anyio.CancelScope(shield=True):
                    await process.wait_exit(child, mcp_bounds.MCP_CLOSE_GRACE_S)
                for task in tasks:
                    task.cancel()
                for stream in (arriving, outbound, leaving):
                    stream.close()
    finally:
        with anyio.CancelScope(shield=True):
            try:
                await process.end_group(child.pid, mcp_bounds.MCP_CLOSE_GRACE_S)
            finally:  # a node looks dead before all of its threads are
                await process.wait_exit(child, mcp_bounds.MCP_CLOSE_GRACE_S)


def _start(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        bufsize=0,
        cwd=cwd,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        umask=process.UMASK,
    )


@contextlib.asynccontextmanager
async def _pipes(
    child: subprocess.Popen[bytes], stderr: Tail
) -> AsyncGenerator[tuple[asyncio.StreamWriter, asyncio.StreamReader]]:
    assert child.stdin and child.stdout and child.stderr
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(mcp_bounds.MCP_READ_BYTES)
    with child.stdin, child.stdout, child.stderr, contextlib.ExitStack() as stack:
        incoming, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), child.stdout
        )
        stack.callback(incoming.close)
        errors, _ = await loop.connect_read_pipe(lambda: _Errors(stderr), child.stderr)
        stack.callback(errors.close)
        outgoing, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), child.stdin
        )
        stack.callback(_close, outgoing)
        yield asyncio.StreamWriter(outgoing, protocol, None, loop), reader


def _close(pipe: asyncio.WriteTransport) -> None:
    pipe.close()
    if pipe.get_write_buffer_size():  # nobody reads it: it would stay open for ever
        pipe.abort()


class _Errors(asyncio.Protocol):
    """Always read, whatever there is of it: a server must not stand still over its log."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail

    def data_received(self, data: bytes) -> None:
        self._tail.add(data)


async def _exit(child: subprocess.Popen[bytes]) -> None:
    while not await process.wait_exit(child, mcp_bounds.MCP_EXIT_LOOK_S):
        pass


async def _read(stdout: asyncio.StreamReader, arriving: MemoryObjectSendStream[Any]) -> None:
    """Messages until the end; what is none is left out: servers print banners there."""
    lines = Lines()
    with contextlib.suppress(ConnectionError):
        while chunk := await stdout.read(mcp_bounds.MCP_READ_BYTES):
            for line in lines.feed(chunk):
                if (message := _message(line)) is not None:
                    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                        await arriving.send(SessionMessage(message))


async def _write(
    leaving: MemoryObjectReceiveStream[SessionMessage], to: asyncio.StreamWriter
) -> None:
    with contextlib.suppress(ConnectionError):  # `watch` tells of it
        async for each in leaving:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            to.write(text.encode() + b"\n")
            await to.drain()


def _message(line: bytes | TooLong) -> types.JSONRPCMessage | None:
    if isinstance(line, TooLong):
        if line.id is None:
            return None
        why = f"the server's answer is longer than {mcp_bounds.MCP_LINE_BYTES} bytes"
        error = types.ErrorData(code=types.INTERNAL_ERROR, message=why)
        return types.JSONRPCError(jsonrpc="2.0", id=line.id, error=error)
    with contextlib.suppress(ValueError):
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    with contextlib.suppress(ValueError, RecursionError):  # perhaps only half a character in it
        mended = json.dumps(json.loads(line.decode(errors="replace")), ensure_ascii=False)
        mended = mended.encode(errors="replace")
        return types.jsonrpc_message_adapter.validate_json(mended, by_name=False)
    return None


def _how_it_ended(code: int | None) -> str:
    match code:
        case None:
            return "it closed its output"
        case code if code < 0:
            return f"it was killed by signal {-code}"
        case _:
            return f"it exited with status {code}"
