"""HTTP servers of a session: headers, lost sessions, and signing in."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from aiohttp import web

from session_worker.mcp_servers.oauth import TokenStore
from tests.support.mcp_session import Session, running

pytestmark = [pytest.mark.anyio, pytest.mark.soak]


class Remote:
    """An MCP server over HTTP that answers in JSON; with `guarded` only to those who signed in,
    at an authorization server of its own."""

    def __init__(self) -> None:
        self.guarded = False
        self.url = ""
        self.headers: list[str | None] = []
        self.session = "first"
        self.forgotten = 404
        self.redirects: list[str] = []
        self.challenge = ""
        self.grants: list[str] = []
        self.tokens: set[str] = set()

    async def mcp(self, request: web.Request) -> web.Response:
        self.headers.append(request.headers.get("X-Key"))
        if request.method == "DELETE":
            return web.Response()
        if request.method == "GET":
            return web.Response(status=405)
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.guarded and bearer not in self.tokens:
            where = f'Bearer resource_metadata="{self.url}/resource"'
            return web.Response(status=401, headers={"WWW-Authenticate": where})
        message = await request.json()
        known = request.headers.get("mcp-session-id") in (None, self.session)
        if not known:
            return web.Response(status=self.forgotten)
        if "id" not in message:
            return web.Response(status=202)
        more: dict[str, Any] = {"error": {"code": -32601, "message": "unknown"}}
        match message["method"]:
            case "initialize":
                who = {"serverInfo": {"name": "remote", "version": "1"}}
                capabilities: dict[str, Any] = {"capabilities": {"tools": {}}}
                more = {"result": {"protocolVersion": "2025-06-18", **capabilities, **who}}
            case "tools/list":
                more = {"result": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}}
            case "tools/call":
                text = json.dumps(message["params"]["arguments"])
                more = {"result": {"content": [{"type": "text", "text": text}]}}
            case _:
                pass
        answer = {"jsonrpc": "2.0", "id": message["id"], **more}
        return web.json_response(answer, headers={"mcp-session-id": self.session})

    async def resource(self, _: web.Request) -> web.Response:
        found = {"resource": f"{self.url}/mcp", "authorization_servers": [self.url]}
        return web.json_response(found)

    async def metadata(self, _: web.Request) -> web.Response:
        places = {name: f"{self.url}/{name}" for name in ("authorize", "token", "register")}
        found = {
            "issuer": self.url,
            "authorization_endpoint": places["authorize"],
            "token_endpoint": places["token"],
            "registration_endpoint": places["register"],
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }
        return web.json_response(found)

    async def register(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.redirects += asked["redirect_uris"]
        return web.json_response({"client_id": "client", **asked}, status=201)

    async def token(self, request: web.Request) -> web.Response:
        form = await request.post()
        self.grants.append(str(form["grant_type"]))
        if form["grant_type"] == "authorization_code":
            digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
            assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == self.challenge
            assert (form["code"], form["redirect_uri"]) == ("the-code", self.redirects[-1])
        token = f"token-{len(self.tokens)}"
        self.tokens = {token}
        granted = {"access_token": token, "token_type": "Bearer", "expires_in": 3600}
        return web.json_response({**granted, "refresh_token": "again"})


@pytest.fixture
async def remote() -> AsyncIterator[Remote]:
    remote = Remote()
    app = web.Application()
    app.router.add_route("*", "/mcp", remote.mcp)
    app.router.add_get("/resource", remote.resource)
    app.router.add_get("/.well-known/oauth-authorization-server", remote.metadata)
    app.router.add_post("/register", remote.register)
    app.router.add_post("/token", remote.token)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    remote.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield remote
    finally:
        await runner.cleanup()


async def come_back(address: str, **changed: str) -> int:
    """What a browser does once its user has signed in at `address`, or has declined to."""
    asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    told = {} if "error" in changed else {"code": "the-code"}
    back = {**told, "state": asked["state"], **changed}
    async with aiohttp.ClientSession() as http, http.get(asked["redirect_uri"], params=back) as got:
        return got.status


async def sign_in(session: Session, remote: Remote, **changed: str) -> None:
    await session.until(lambda: session.status()["sign_in_at"])
    address = session.status()["sign_in_at"]
    assert session.status()["state"] == "unauthorized"
    remote.challenge = parse_qs(urlsplit(address).query)["code_challenge"][0]
    assert await come_back(address, **changed) == 200


async def test_headers_go_along_and_are_shown_by_name_only(tmp_path: Path, remote: Remote) -> None:
    server = {"type": "http", "url": f"{remote.url}/mcp", "headers": {"X-Key": "${SECRET}"}}
    async with running(tmp_path, a=server) as session:
        await session.until_state("connected")
        assert json.loads(await session.text("a__echo", n=1)) == {"n": 1}
        assert session.status()["headers"] == ["X-Key"]
        assert "s3cret" not in json.dumps(session.servers.status())
    assert set(remote.headers) == {"s3cret"}


@pytest.mark.parametrize("status", [404, 400])  # as it should be, and as server-everything says it
async def test_a_session_that_the_server_forgot_is_made_anew(
    tmp_path: Path, remote: Remote, status: int
) -> None:
    remote.forgotten = status
    async with running(tmp_path, a={"url": f"{remote.url}/mcp"}) as session:
        await session.until_state("connected")
        remote.session = "second"
        lost = await session.call("a__echo", n=1)
        assert lost.is_error
        assert ("outcome of the call unknown" in lost.content) == (status == 404)
        await session.until_state("failed")
        await session.until_state("connected")
        assert json.loads(await session.text("a__echo", n=2)) == {"n": 2}


async def test_a_server_that_nobody_runs_is_a_failure(tmp_path: Path) -> None:
    async with running(tmp_path, a={"url": "http://127.0.0.1:9/mcp"}) as session:
        await session.until_state("failed")
        assert session.status()["reason"]


async def test_a_refused_header_is_unauthorized_and_not_tried_again(
    tmp_path: Path, remote: Remote
) -> None:
    remote.guarded = True
    server = {"url": f"{remote.url}/mcp", "headers": {"authorization": "Bearer wrong"}}
    async with running(tmp_path, a=server) as session:
        await session.until_state("unauthorized")
        assert session.status()["sign_in_at"] is None
        remote.guarded = False
        session.servers.restart("a")
        await session.until_state("connected")


async def test_signing_in_is_kept_for_the_next_session_and_refreshed(
    tmp_path: Path, remote: Remote
) -> None:
    remote.guarded = True
    server = {"url": f"{remote.url}/mcp"}
    async with running(tmp_path, a=server) as session:
        await sign_in(session, remote)
        await session.until_state("connected")
        assert json.loads(await session.text("a__echo", n=1)) == {"n": 1}
    (kept,) = (tmp_path / "mcp-tokens").glob("*.json")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert urlsplit(remote.redirects[0]).hostname == "127.0.0.1"
    async with running(tmp_path, a=server) as session:
        await session.until_state("connected")
    stored = json.loads(kept.read_text())
    kept.write_text(json.dumps(stored | {"expires_at": 1}))
    async with running(tmp_path, a=server) as session:
        await session.until_state("connected")
    assert remote.grants == ["authorization_code", "refresh_token"]
    assert TokenStore(tmp_path / "mcp-tokens", server["url"]).port() == (
        urlsplit(remote.redirects[0]).port
    )


async def test_an_answer_that_was_not_asked_for_signs_nobody_in(
    tmp_path: Path, remote: Remote
) -> None:
    remote.guarded = True
    async with running(tmp_path, a={"url": f"{remote.url}/mcp"}) as session:
        await sign_in(session, remote, state="another")
        await session.until(lambda: session.status()["sign_in_at"] is None)
        assert session.status()["state"] == "unauthorized"
    assert remote.grants == []


async def test_a_declined_sign_in_ends_at_once_and_says_so(tmp_path: Path, remote: Remote) -> None:
    remote.guarded = True
    declined = {"error": "access_denied", "error_description": "not this one"}
    async with running(tmp_path, a={"url": f"{remote.url}/mcp"}) as session:
        await session.until(lambda: session.status()["sign_in_at"])
        address = session.status()["sign_in_at"]
        assert await come_back(address, **declined, state="of any page") == 404
        assert session.status()["sign_in_at"] == address
        assert await come_back(address, **declined) == 200
        await session.until(lambda: session.status()["sign_in_at"] is None)
        assert session.status()["state"] == "unauthorized"
        assert "not this one" in session.status()["reason"]
