"""Who may ask, and in which form: the verdict over one request. Pure.

`app.py` asks for it before any route, also one that does not exist. Over the Unix socket the peer's
user id is the key, over TCP the token is; the rest keeps web pages out (peers.md §D 3-5).
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from multidict import CIMultiDict, CIMultiDictProxy

from session_worker.http.errors import HttpError
from session_worker.spec import TcpSpec

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True)
class Peer:
    """The process at the other end of a Unix socket, at the time it connected."""

    ours: bool
    of_a_session: bool


@dataclass(frozen=True)
class Asked:
    """What a request shows of itself. `target` is what stands in its first line, `peer` is None
    over TCP. A missing `content_type` is None."""

    method: str
    target: str
    headers: CIMultiDict[str] | CIMultiDictProxy[str]
    content_type: str | None
    peer: Peer | None


def steers(method: str, headers: CIMultiDict[str] | CIMultiDictProxy[str]) -> bool:
    """Whether the request may change something: by itself, or as the beginning of a WebSocket."""
    return method in WRITES or "Upgrade" in headers


def refusal(asked: Asked, tcp: TcpSpec | None) -> HttpError | None:
    """The first reason to refuse, None if there is none. The token is looked at after Host and
    Origin: a web page does not even learn whether it has the right one."""
    if asked.peer is None and not (tcp and _names_us(asked, tcp)):
        return HttpError(421, "misdirected", "this endpoint is 127.0.0.1 or localhost, with port")
    listed = tcp.origins if tcp else frozenset[str]()
    if any(origin not in listed for origin in asked.headers.getall("Origin", ())):
        return HttpError(403, "forbidden", "requests from web pages are refused")
    if asked.peer is None and not (tcp and _has_token(asked, tcp)):
        return HttpError(
            401, "unauthorized", "send 'authorization: Bearer TOKEN', the token of this session"
        )
    if asked.peer is not None and not asked.peer.ours:
        return HttpError(403, "forbidden", "this endpoint belongs to another user")
    if asked.peer is not None and asked.peer.of_a_session and steers(asked.method, asked.headers):
        return HttpError(403, "forbidden", "what a session's agent starts may not steer a session")
    if asked.method in WRITES and not _is_json(asked):
        return HttpError(
            415, "invalid_input", "send the body with 'content-type: application/json'"
        )
    return None


def _names_us(asked: Asked, tcp: TcpSpec) -> bool:
    """A page whose name was made to point here still sends that name (DNS rebinding). A whole
    address in the first line would count before the header, so there may be none."""
    host = asked.headers.get("Host", "").lower()
    ours = (f"127.0.0.1:{tcp.port}", f"localhost:{tcp.port}")
    return host in ours and asked.target.startswith("/")


def _has_token(asked: Asked, tcp: TcpSpec) -> bool:
    """In the one place where no log, history or page keeps it: not in the query, not a cookie."""
    given = asked.headers.getall("Authorization", ())
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    right = hmac.compare_digest(token.encode(errors="surrogateescape"), tcp.token.encode())
    return right and scheme.lower() == "bearer"


def _is_json(asked: Asked) -> bool:
    if asked.content_type is None:  # nobody sends one without a body, the acp-sdk client never
        return asked.method == "DELETE" or asked.target.startswith("/runs")
    return asked.content_type == "application/json"
