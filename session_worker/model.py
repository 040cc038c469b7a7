"""The one door to the Messages API: raw stream events in, typed errors out.

Only this file imports `anthropic`. Retries are the loop's business: the SDK's own are silent
and obey an uncapped `retry-after` (anthropic.md §1.2).
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import cache
from pathlib import Path
from typing import Any

import anthropic
import httpx2
from anthropic import AsyncAnthropic, AsyncStream, DefaultAsyncHttpxClient

from session_worker.model_error import ModelError
from session_worker.provider import Provider
from sidecar.protocol import bounds


class Model:
    """A client for one session's provider. Must be closed."""

    def __init__(
        self, provider: Provider, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        """`transport` stands in for the network, without proxies."""
        timeout = httpx2.Timeout(
            connect=bounds.MODEL_CONNECT_S,
            read=bounds.MODEL_STALL_S,
            write=bounds.MODEL_WRITE_S,
            pool=bounds.MODEL_CONNECT_S,
        )
        own_transport: dict[str, Any] = {"transport": transport, "trust_env": False}
        self._client = AsyncAnthropic(
            api_key=provider.api_key,
            auth_token=provider.auth_token,
            base_url=provider.base_url,
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(
                verify=_tls(),
                timeout=timeout,
                follow_redirects=False,  # one would carry the key to wherever it points
                **(own_transport if transport else {}),
            ),
        )

    @classmethod
    def on_socket(cls, provider: Provider, path: Path) -> Model:
        """A model that is served on a Unix socket."""
        return cls(provider, httpx2.AsyncHTTPTransport(uds=str(path), verify=_tls()))

    async def stream(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """The raw events of one call, ping and error included. Raises `ModelError`."""
        try:
            async with self._client.messages.with_streaming_response.create(
                **request, stream=True
            ) as response:
                content_type = response.headers.get("content-type", "")
                if not content_type.startswith("text/event-stream"):
                    raise ModelError(
                        "protocol_error", f"the answer is {content_type or 'untyped'}, not a stream"
                    )
                events = AsyncStream.raw_events(response.http_response)
                async with aclosing(events):  # pyright: ignore[reportArgumentType]
                    async for event in events:
                        yield json.loads(event.data)
        except Exception as error:
            raise _translate(error) from error

    async def close(self) -> None:
        await self._client.close()


def _translate(error: Exception) -> Exception:
    match error:
        case ModelError():
            return error
        case anthropic.APITimeoutError() | httpx2.TimeoutException():
            return ModelError("timeout_error", "the model sent nothing for too long")
        case anthropic.APIStatusError():
            return ModelError(error.type or f"http_{error.status_code}", error.message)
        case anthropic.APIConnectionError():
            return ModelError("connection_error", f"{error} ({error.__cause__})")
        case anthropic.AnthropicError():
            return ModelError("client_error", str(error))
        case httpx2.TransportError():
            return ModelError("connection_error", f"the stream broke: {error!r}")
        case ValueError():
            return ModelError("protocol_error", f"not JSON on the model's stream: {error}")
        case _:
            return error


@cache
def _tls() -> ssl.SSLContext:
    """Building a context takes 25 ms; the zygote builds it once for all its workers."""
    return httpx2.create_ssl_context()


def preload() -> None:
    """Pay before the fork for what a first call builds and imports: 30 ms in every worker else.

    Makes one call to a transport that answers from memory. Leaves no thread.
    """

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            200, headers={"content-type": "text/event-stream"}, text='data: {"type":"ping"}\n\n'
        )

    async def call_once() -> None:
        model = Model(Provider(model="none", api_key="none"), httpx2.MockTransport(answer))
        async for _ in model.stream({"model": "none", "max_tokens": 1, "messages": []}):
            pass
        await model.close()

    asyncio.run(call_once())
