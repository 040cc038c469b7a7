"""What a stream leaves in memory when its client goes."""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from aiohttp import web

from session_worker.http.sse import EventStream


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
async def test_what_was_being_sent_to_a_client_that_left_is_freed_at_once(tmp_path: Path) -> None:
    data, begun, left = b"x" * 1_000_000, anyio.Event(), anyio.Event()

    async def serve(request: web.Request) -> web.StreamResponse:
        stream = await EventStream.open(request)
        begun.set()  # nobody runs before the first bytes wait for the client
        with suppress(ConnectionError):
            while True:
                await stream.send(data)
        left.set()
        return await stream.end()

    app = web.Application()
    app.router.add_get("/", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "socket")).start()
    references = sys.getrefcount(data)
    with anyio.fail_after(10), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "socket"))
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await begun.wait()
        client.close()
        await left.wait()
    await runner.cleanup()
    assert sys.getrefcount(data) == references
