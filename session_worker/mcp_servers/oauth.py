"""Signing in to an HTTP server: authorization code with PKCE, as the MCP library speaks it.

Ours is what the library leaves open: the address a person opens, the loopback address that the
browser comes back to, and the tokens in between sessions. Never opens a browser: whoever shows the
status shows the address. Imported only when there is an HTTP server.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from sidecar.protocol import mcp_bounds
from sidecar.protocol.files import exclusive, read_json, write_json

CALLBACK = "/callback"

_OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n"
_PAGE = _OK + b"Thank you. You can close this page and go back to your session.\n"
_DECLINED = _OK + b"Nobody was signed in. You can close this page.\n"
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n"


def sign_in(url: str, state: Path, on_address: Callable[[str], None]) -> OAuthClientProvider:
    """The authorization for requests to `url`; tokens are kept below `state`. `on_address` gets
    what a person has to open, when somebody has to."""
    store = TokenStore(state / "mcp-tokens", url)
    port = store.port() or _free_port()
    browser = _Browser(port, on_address)
    provider = OAuthClientProvider(
        url,
        OAuthClientMetadata(
            client_name="Sidecar",
            redirect_uris=[AnyUrl(f"http://127.0.0.1:{port}{CALLBACK}")],
            token_endpoint_auth_method="none",
        ),
        store,
        browser.ask,
        browser.answer,
    )
    # the library does not: it would have people sign in again instead of refreshing
    provider.context.token_expiry_time = store.expires_at()
    return provider


class TokenStore:
    """The tokens for one server, in a file (0600) that all sessions share."""

    def __init__(self, directory: Path, url: str) -> None:
        self._file = directory / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.json"

    def port(self) -> int | None:
        """Of the address that was registered, which must stay the same to the letter."""
        client = self._client()
        return client.redirect_uris[0].port if client and client.redirect_uris else None

    def expires_at(self) -> float | None:
        return self._stored().get("expires_at")

    async def get_tokens(self) -> OAuthToken | None:
        tokens = self._stored().get("tokens")
        return OAuthToken.model_validate(tokens) if tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        lasts = tokens.expires_in
        expires_at = None if lasts is None else time.time() + lasts
        self._keep(tokens=tokens.model_dump(mode="json"), expires_at=expires_at)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client()

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._keep(client=client_info.model_dump(mode="json"))

    def _client(self) -> OAuthClientInformationFull | None:
        client = self._stored().get("client")
        return OAuthClientInformationFull.model_validate(client) if client else None

    def _stored(self) -> dict[str, Any]:
        try:
            return read_json(self._file)
        except (OSError, ValueError):
            return {}  # then somebody signs in again

    def _keep(self, **members: Any) -> None:
        self._file.parent.mkdir(mode=0o700, exist_ok=True)
        with exclusive(self._file):
            write_json(self._file, self._stored() | members)


class _Browser:
    """Sends a person to an address, and hears what their browser brings back to `port`."""

    def __init__(self, port: int, on_address: Callable[[str], None]) -> None:
        self._port = port
        self._on_address = on_address
        self._server: asyncio.Server | None = None
        self._brought: asyncio.Future[AuthorizationCodeResult] | None = None
        self._state: str | None = None

    async def ask(self, address: str) -> None:
        self._state = _query(address).get("state")
        self._brought = asyncio.get_running_loop().create_future()
        try:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        except OSError:
            raise OAuthFlowError("another session already waits for this sign-in") from None
        self._on_address(address)

    async def answer(self) -> AuthorizationCodeResult:
        assert self._server and self._brought
        try:
            async with asyncio.timeout(mcp_bounds.MCP_SIGN_IN_S):
                return await self._brought
        except TimeoutError:
            raise OAuthFlowError("nobody signed in") from None
        finally:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(mcp_bounds.MCP_SIGN_IN_REQUEST_S):
                target = (await reader.readline()).split(b" ")[1].decode()
                expected = urlsplit(target).path == CALLBACK
                writer.write(self._heard(_query(target)) if expected else _NOT_FOUND)
                await writer.drain()
        except (TimeoutError, ConnectionError, IndexError, ValueError):
            pass
        finally:
            writer.close()

    def _heard(self, given: dict[str, str]) -> bytes:
        """The page to show for what was brought, a code or an error (RFC 6749 §4.1.2)."""
        brought = self._brought if self._brought and not self._brought.done() else None
        if "code" in given:
            if brought:
                result = {name: given.get(name) for name in ("code", "state", "iss")}
                # the library compares the state with the one it sent (and refuses without)
                brought.set_result(AuthorizationCodeResult.model_validate(result))
            return _PAGE
        if "error" not in given or given.get("state") != self._state:
            return _NOT_FOUND  # any page could send a browser here to end our waiting
        if brought:
            why = (given.get("error_description") or given["error"])[: mcp_bounds.MCP_NAMED_CHARS]
            brought.set_exception(OAuthFlowError(f"the sign-in was declined: {why}"))
        return _DECLINED


def _query(address: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
