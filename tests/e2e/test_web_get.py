"""A fetch against real servers that mean no good: addresses, redirects, sizes, time."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from session_worker.web.get import NotFetched, Page, get
from sidecar.protocol import bounds

pytestmark = pytest.mark.anyio

BOMB = gzip.compress(b"\0" * (100 * bounds.MIB))
LINE = b"x" * 1023 + b"\n"
SLOW_S = 0.5


def head(*lines: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "\r\n"]).encode()


def moved(location: str) -> bytes:
    return head(f"Location: {location}", "Content-Length: 0", status="302 Found")


class Server:
    """Answers as bytes by path; one that is a list ends only with the connection, its last piece
    again and again."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes | list[bytes]] = {}
        self.asked: list[str] = []
        self.port = 0

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    @property
    def private(self) -> set[str]:
        return {f"127.0.0.1:{self.port}"}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.asked.append(asked)
            answer = self.answers[asked.split()[1]]
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
                return
            writer.write(b"".join(answer))
            while True:
                await writer.drain()
                await asyncio.sleep(SLOW_S / 10 if len(answer[-1]) < 10 else 0)
                writer.write(answer[-1])
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as server:
        yield server


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await listening.wait_closed()


async def refusal(url: str, private: set[str] | None = None, **more: float) -> str:
    with pytest.raises(NotFetched) as refused:
        await get(url, private or set(), **more)
    return str(refused.value)


async def fetched(server: Server, path: str = "/") -> Page:
    return await get(server.url(path), server.private)


async def test_a_page_comes_with_its_type_and_nothing_of_ours_goes_along(server: Server) -> None:
    cookie = "Set-Cookie: a=b"
    server.answers["/"] = head(cookie, "Content-Type: text/html", "Content-Length: 2") + b"hi"
    server.answers["/again"] = moved("/")
    page = await fetched(server, "/again")
    assert (page.body, page.kind, page.status, page.url) == (b"hi", "html", 200, server.url())
    sent = "".join(server.asked).lower()
    assert "user-agent: sidecar/" in sent
    assert not [name for name in ("cookie", "authorization", "referer") if name in sent]


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "0x7f.1",
        "0x7f000001",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
    ],
)
async def test_no_spelling_leads_to_this_machine(server: Server, host: str) -> None:
    assert "an address that is" in await refusal(f"http://{host}:{server.port}/")
    assert server.asked == []


@pytest.mark.parametrize("host", ["2130706433", "0177.0.0.1", "127.1", "localhost."])
async def test_neither_does_one_that_not_every_system_knows(server: Server, host: str) -> None:
    assert await refusal(f"http://{host}:{server.port}/")
    assert server.asked == []


async def test_a_proxy_of_the_environment_is_not_asked(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, server.url())
    assert "an address that is" in await refusal("http://localhost/")
    assert server.asked == []


def names(monkeypatch: pytest.MonkeyPatch, lookup: Callable[[], list[str]]) -> None:
    """What `two.example` resolves to."""
    real = socket.getaddrinfo

    def answer(host: Any, port: Any, *args: Any, **more: Any) -> Any:
        if host != "two.example":
            return real(host, port, *args, **more)
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(*kind, (address, port)) for address in lookup()]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


async def test_every_address_of_a_name_is_judged_in_the_moment_it_is_asked(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://two.example:{server.port}/"
    names(monkeypatch, lambda: ["127.0.0.1"])
    assert "this machine's own" in await refusal(url)
    judged: list[str] = []

    def judge(address: str) -> str | None:
        judged.append(address)
        return None if address == "127.0.0.1" else "not to be asked"  # as if it were public

    monkeypatch.setattr("session_worker.web.get.why_not_public", judge)
    names(monkeypatch, lambda: ["10.0.0.1", "127.0.0.1"])
    server.answers["/"] = head() + b"hi"
    assert (await get(url, set())).body == b"hi"
    assert judged == ["10.0.0.1", "127.0.0.1"]
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])
    names(monkeypatch, lambda: next(answers))
    server.answers["/"] = moved("/again")  # the second time, its name means another address
    assert "10.0.0.1" in await refusal(url)


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("http://169.254.169.254/latest/meta-data/", None),
        ("http://localhost/", None),
        ("//example.org/", None),
        ("file:///etc/passwd", "only http"),
        ("http://me:secret@127.0.0.1/", "user"),
        ("http://[::1", "no URL"),
        ("http://exa mple.org\\@127.0.0.1/", "user"),
    ],
)
async def test_a_redirect_to_another_host_is_told_and_not_followed(
    server: Server, location: str, said: str | None
) -> None:
    server.answers["/"] = moved(location)
    if said is not None:
        assert said in await refusal(server.url(), server.private)
    else:
        page = await fetched(server)
        assert page.moved_to.endswith(location) and page.body == b""
    assert len(server.asked) == 1


async def test_a_redirect_to_another_port_is_judged_anew(server: Server) -> None:
    async with serving() as other:
        server.answers["/"] = moved(other.url("/secret"))
        assert "this machine's own" in await refusal(server.url(), server.private)
        assert other.asked == []


async def test_a_redirect_without_an_end_has_one(server: Server) -> None:
    server.answers["/"] = moved("/")
    assert "redirects more than" in await refusal(server.url(), server.private)
    assert len(server.asked) == bounds.WEB_REDIRECTS + 1


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
async def test_a_page_without_an_end_is_cut(server: Server, encoding: str) -> None:
    body = BOMB if encoding == "gzip" else LINE
    server.answers["/"] = [head("Content-Type: text/plain", f"Content-Encoding: {encoding}"), body]
    page = await fetched(server)
    assert (len(page.body), page.cut) == (bounds.WEB_BYTES, True)


async def test_a_packed_page_is_unpacked(server: Server) -> None:
    packed = gzip.compress(b"hi")
    lines = ("Content-Encoding: gzip", f"Content-Length: {len(packed)}")
    server.answers["/"] = head(*lines) + packed
    assert (await fetched(server)).body == b"hi"


@pytest.mark.parametrize(
    "answer",
    [
        [b"HTTP/1.1 200 OK\r\nX: ", b"x"],
        [b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"],
        [head("Content-Length: 99"), b"x"],
        [head("Content-Encoding: gzip"), b"\x1f\x8b\x08\0\0\0\0\0\0\xff", b"\0\0\0\xff\xff"],
    ],
)
async def test_a_server_that_takes_its_time_is_given_up(
    server: Server, answer: list[bytes]
) -> None:
    server.answers["/"] = answer
    assert await refusal(server.url(), server.private, within_s=SLOW_S)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (head("Content-Type: image/png", "Content-Length: 12345"), "image/png, 12345 bytes"),
        (head("Content-Type: application/zip"), "only text"),
        (head("Content-Encoding: br"), "nobody asked for"),
        (head("Content-Encoding: gzip") + b"no gzip", "makes no sense"),
        (head("Content-Length: 10") + b"short", "broke off"),
        (head("X: " + "x" * 100_000), "no usable answer"),
        (head(*(f"X{n}: x" for n in range(10_000))), "no usable answer"),
        (b"no http at all\r\n\r\n", "no usable answer"),
        (b"", "no usable answer"),
    ],
)
async def test_what_is_no_page_is_refused_with_the_reason(
    server: Server, answer: bytes, said: str
) -> None:
    server.answers["/"] = answer
    assert said in await refusal(server.url(), server.private)


async def test_a_server_that_is_not_there_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no connection" in await refusal("http://127.0.0.1:9/", {"127.0.0.1:9"})

    def unknown() -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    names(monkeypatch, unknown)
    assert "no such host" in await refusal("http://two.example/")
