"""A client that keeps the endpoint waiting loses its connection; bounds are short here."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from session_worker.http import connection, intake
from session_worker.http.connection import Listening
from session_worker.http.errors import HttpError, error_response
from session_worker.http.intake import Intake
from sidecar.protocol import bounds

BIG_BYTES = 32 * bounds.MIB
"""More than any socket buffers."""
WITHIN_S = 20.0
SHORT_S = 0.2

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Client]]


@web.middleware
async def take_bodies(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        await request.app[intake.INTAKE].take(request)
    except HttpError as error:
        return error_response(error.status, error.code, error.message)
    return await handler(request)


async def size(request: web.Request) -> web.Response:
    return web.json_response(len(await request.read()))


async def big(_: web.Request) -> web.Response:
    return web.Response(body=bytes(BIG_BYTES))


@asynccontextmanager
async def endpoint(directory: Path) -> AsyncGenerator[tuple[Connect, Listening]]:
    app = web.Application(middlewares=[take_bodies], client_max_size=bounds.HTTP_BODY_BYTES)
    app[intake.INTAKE] = Intake()
    app.router.add_post("/size", size)
    app.router.add_get("/big", big)
    runner = web.AppRunner(app, shutdown_timeout=SHORT_S)
    await runner.setup()
    path = directory / "s"
    clients: list[Client] = []

    async def connect() -> Client:
        clients.append(await asyncio.open_unix_connection(path))
        return clients[-1]

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert runner.server is not None
        listening = Listening(runner.server, listener)
        await listening.start()
        try:
            async with asyncio.timeout(WITHIN_S):
                yield connect, listening
        finally:
            for _, writer in clients:
                writer.close()
            listening.stop()
            await runner.cleanup()


async def until(condition: Callable[[], bool]) -> None:
    """`endpoint` bounds the wait."""
    while not condition():  # noqa: ASYNC110 - it is polled on purpose
        await asyncio.sleep(SHORT_S / 100)


async def answer(client: Client, request: bytes) -> tuple[int, Any]:
    """Status and body; the connection ends with it."""
    reader, writer = client
    writer.write(request)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


async def drip(client: Client, head: bytes, drop: bytes) -> bytes:
    """Send `head`, then `drop` for as long as the other side takes it; what it answered, if it did
    so before it closed."""
    reader, writer = client
    writer.write(head)
    answered = b""
    with suppress(ConnectionError):
        while not reader.at_eof():
            with suppress(TimeoutError):
                async with asyncio.timeout(SHORT_S / 10):
                    answered += await reader.read(bounds.KIB)
            writer.write(drop)
    return answered


def post(length: int, body: bytes = b"") -> bytes:
    head = "POST /size HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    return (head % length).encode() + body


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"", b""),
        (b"GET /big HT", b""),
        (b"GET /big HTTP/1.1\r\nHost: h\r\nX: ", b"y"),
        (b"GET /big HTTP/1.1\r\nHost: h\r\n", b"X: y\r\n"),
    ],
    ids=["nothing", "half a line", "a drip of a header", "a drip of headers"],
)
async def test_a_head_that_does_not_come_to_its_end_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes, drop: bytes
) -> None:
    monkeypatch.setattr(bounds, "HTTP_KEEPALIVE_S", SHORT_S)
    async with endpoint(tmp_path) as (connect, _):
        assert await drip(await connect(), head, drop) == b""


async def test_the_second_head_of_a_connection_has_no_longer_than_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HTTP_KEEPALIVE_S", SHORT_S)
    whole = post(2, b"ab").replace(b"close", b"keep-alive")
    async with endpoint(tmp_path) as (connect, _):
        answered = await drip(await connect(), whole + b"GET /big HTTP/1.1\r\nX: ", b"y")
        assert answered.startswith(b"HTTP/1.1 200 ")
        assert answered.count(b"HTTP/1.1") == 1


async def test_a_body_that_drips_is_given_up_with_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "BODY_S", SHORT_S)
    monkeypatch.setattr(connection, "LINGER_S", SHORT_S)
    async with endpoint(tmp_path) as (connect, _):
        answered = await drip(await connect(), post(100_000), b"x")
        assert answered.startswith(b"HTTP/1.1 408 ")


async def test_large_bodies_that_drip_do_not_hold_up_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with endpoint(tmp_path) as (connect, _):
        for _ in range(intake.LARGE_BODIES):
            (await connect())[1].write(post(100_000, b"x"))
        assert await answer(await connect(), post(2, b"ab")) == (200, 2)
        monkeypatch.setattr(intake, "BODY_S", SHORT_S)
        status, _ = await answer(await connect(), post(100_000, bytes(100_000)))
        assert status == 408  # its turn did not come


async def test_a_body_that_breaks_off_or_is_nonsense_is_the_clients_error(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as (connect, _):
        reader, writer = await connect()
        writer.write(post(10, b"half"))
        writer.write_eof()
        assert await reader.read() == b""
        chunked = post(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        assert (await answer(await connect(), chunked + b"nonsense\r\n"))[0] == 400


async def test_a_body_that_is_declared_too_large_is_refused_before_a_byte_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LINGER_S", SHORT_S)
    async with endpoint(tmp_path) as (connect, _):
        status, error = await answer(await connect(), post(bounds.HTTP_BODY_BYTES + 1))
        assert (status, error["code"]) == (413, "too_large")


@pytest.mark.parametrize("after", ["keep-alive", "close"])
async def test_a_client_that_takes_nothing_of_its_answer_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    monkeypatch.setattr(connection, "WRITE_STALL_S", SHORT_S)
    async with endpoint(tmp_path) as (connect, listening):
        reader, writer = await connect()
        writer.transport.pause_reading()
        writer.write(f"GET /big HTTP/1.1\r\nHost: h\r\nConnection: {after}\r\n\r\n".encode())
        await until(lambda: listening.in_use)
        await until(lambda: not listening.in_use)
        writer.transport.resume_reading()
        assert len(await reader.read()) < BIG_BYTES


async def test_a_client_that_takes_its_answer_slowly_gets_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "WRITE_STALL_S", SHORT_S)
    async with endpoint(tmp_path) as (connect, _):
        reader, writer = await connect()
        writer.write(b"GET /big HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        got = 0
        while chunk := await reader.read(bounds.MIB):
            got += len(chunk)
            await asyncio.sleep(SHORT_S / 20)
        assert got > BIG_BYTES


async def test_one_connection_too_many_is_told_so_and_the_next_finds_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECTIONS", 2)
    monkeypatch.setattr(connection, "REFUSALS", 1)
    async with endpoint(tmp_path) as (connect, listening):
        first, _second, third, fourth = [await connect() for _ in range(4)]
        assert await fourth[0].read() == b""  # cut off without a word
        status, error = await answer(third, post(2, b"ab"))
        assert (status, error["code"]) == (503, "overloaded")
        assert await answer(first, post(2, b"ab")) == (200, 2)
        assert listening.in_use
        assert await answer(await connect(), post(2, b"ab")) == (200, 2)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"x" * 9000,
        b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 9000,
        b"GET / HTTP/1.1\r\nHost: h\r\n" + b"".join(b"X%d: y\r\n" % n for n in range(200)),
        b"GET / HTTP/1.1\r\nHost: h\r\nHost: evil\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nAuthorization : secret\r\n\r\n",
        b"GET / HTTP/1.1\r\nAuthorization: secret\r\n\r\n",
        b"\x16\x03\x01 secret nonsense\r\n\r\n",
    ],
    ids=["line", "header", "headers", "two hosts", "space", "no host", "no HTTP"],
)
async def test_a_head_that_is_no_good_is_refused_without_being_quoted_anywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, head: bytes
) -> None:
    async with endpoint(tmp_path) as (connect, _):
        status, error = await answer(await connect(), head)
    assert (status, error["code"]) == (400, "invalid_input")
    assert caplog.text == ""
