"""One GET, with the address rules: what is connected to is what was judged.

A name is judged when it has become an address, in the moment before the socket is made: nothing
that a name resolves to earlier or later counts. Redirects go to the same host alone, which is what
somebody allowed; where else one leads is told. Nothing of ours goes along: no cookie, no password,
no proxy, which would look up names by itself.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from session_worker.permissions.match import host
from session_worker.web import urls
from session_worker.web.addresses import why_not_public
from session_worker.web.text import Kind, kind_of
from sidecar.protocol import VERSION, bounds

REDIRECTS = (301, 302, 303, 307, 308)
HEADERS = {
    "User-Agent": f"sidecar/{VERSION}",
    "Accept": "text/html, text/plain, text/markdown, application/json, text/*;q=0.9, */*;q=0.1",
    "Accept-Encoding": "gzip, deflate",
}
_EITHER = 32 + zlib.MAX_WBITS
"""zlib's word for a gzip or a zlib head, whichever is there."""


class NotFetched(Exception):
    """Why, for the model."""


@dataclass(frozen=True)
class Page:
    """`url` is where it was in the end. `cut`: there was more than WEB_BYTES. With `moved_to` there
    is no body: the page is at another host."""

    url: str
    status: int
    content_type: str
    kind: Kind
    body: bytes = b""
    cut: bool = False
    moved_to: str = ""


async def get(url: str, private: Collection[str], within_s: float = bounds.WEB_FETCH_S) -> Page:
    """The page at `url`, of which `urls.problem` said nothing. `private` are the hosts that may be
    anywhere. Raises `NotFetched`."""
    try:
        async with asyncio.timeout(within_s):
            return await _follow(url, private)
    except TimeoutError:
        raise NotFetched(f"no whole answer within {within_s:g} s") from None


async def _follow(url: str, private: Collection[str]) -> Page:
    for _ in range(bounds.WEB_REDIRECTS + 1):
        page, location = await _one(url, private)
        if not location:
            return page
        try:
            target = urls.target(url, location)
        except ValueError:
            raise NotFetched("it redirects to something that is no URL") from None
        if why := urls.problem(target):
            raise NotFetched(f"it redirects to {target[:200]!r}: {why}")
        if host(target) != host(url):
            return Page(url, page.status, "", None, moved_to=target)
        if url.lower().startswith("https:") and not target.lower().startswith("https:"):
            raise NotFetched(f"it redirects from https to {target[:200]!r}")
        url = target
    raise NotFetched(f"it redirects more than {bounds.WEB_REDIRECTS} times")


async def _one(url: str, private: Collection[str]) -> tuple[Page, str]:
    """What is at `url`, and where that leads, if it is a redirect."""
    refused: list[str] = []
    connector = aiohttp.TCPConnector(
        socket_factory=_judged(refused, free=urls.may_be_private(url, private)), force_close=True
    )
    try:
        async with (
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                trust_env=False,
            ) as session,
            session.get(URL(url), headers=HEADERS, allow_redirects=False) as response,
        ):
            if response.status in REDIRECTS and (location := response.headers.get("Location")):
                return Page(url, response.status, "", None), location
            return await _page(url, response), ""
    except (aiohttp.ClientError, zlib.error, ValueError) as error:
        if refused and isinstance(error, aiohttp.ClientConnectorError):
            raise NotFetched(f"{host(url)} is at {refused[0]}") from None
        raise NotFetched(_why(error)) from None


def _judged(refused: list[str], *, free: bool) -> Callable[[Any], socket.socket]:
    """Makes sockets for public addresses; `refused` says of others what they are."""

    def make(info: Any) -> socket.socket:
        family, kind, protocol, _, address = info
        why = None if free else why_not_public(str(address[0]))
        if why is not None:
            refused.append(f"{address[0]}, an address that is {why}")
            raise OSError(f"{address[0]} is {why}")
        return socket.socket(family, kind, protocol)

    return make


async def _page(url: str, response: aiohttp.ClientResponse) -> Page:
    content_type = response.headers.get("Content-Type", "")
    kind = kind_of(content_type)
    if kind is None:
        size = f", {response.content_length} bytes" if response.content_length else ""
        raise NotFetched(f"it is {content_type[:100]}{size}: only text can be shown")
    body, cut = await _body(response)
    return Page(url, response.status, content_type, kind, body, cut)


async def _body(response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
    """At most WEB_BYTES, on the wire and unpacked; and whether there was more."""
    unpack = _unpacker(response.headers.get("Content-Encoding", "").strip().lower())
    body, came, limit = bytearray(), 0, bounds.WEB_BYTES
    async for chunk in response.content.iter_any():
        came += len(chunk)
        body += unpack(chunk, limit + 1 - len(body))
        if max(came, len(body)) > limit:
            return bytes(body[:limit]), True
    return bytes(body), False


def _unpacker(encoding: str) -> Callable[[bytes, int], bytes]:
    """Never makes more than it is asked for, whatever a few bytes would become."""
    match encoding:
        case "" | "identity":
            return lambda chunk, _: chunk
        case "gzip" | "x-gzip" | "deflate":
            return zlib.decompressobj(_EITHER).decompress
        case _:
            raise NotFetched(f"it is packed as {encoding[:40]!r}, which nobody asked for")


def _why(error: Exception) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return "its certificate is not accepted"
        case aiohttp.ClientConnectorDNSError():
            return "there is no such host"
        case aiohttp.ClientConnectorError():
            return f"no connection: {error.os_error.strerror or error.os_error}"
        case aiohttp.ClientPayloadError() | zlib.error():
            return "its answer broke off, or makes no sense"
        case _:
            return f"no usable answer: {type(error).__name__}"
