"""The one door to the Messages API: raw stream events in, typed errors out.

Only this file imports `anthropic`. Retries are the loop's business: the SDK's own are silent
and obey an uncapped `retry-after` (anthropic.md §1.2).
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

import anthropic
import httpx2
from anthropic import AsyncAnthropic, AsyncStream, DefaultAsyncHttpxClient

from session_worker.demo_transport import DemoTransport
from session_worker.model_error import ModelError
from session_worker.provider import Provider
from session_worker.recovery import TLS_ERROR, retry_after
from sidecar.protocol import bounds


class Model:
    """A client for one session's provider, made for its first call: an idle session does without.

    Must be closed.
    """

    def __init__(
        self,
        provider: Provider,
        transport: httpx2.AsyncBaseTransport | None = None,
        betas: Sequence[str] = (),
    ) -> None:
        """`transport` stands in for the network, without proxies. `betas` go with every call."""
        self._provider = provider
        self._betas = tuple(betas)
        self._transport = transport
        self._made: AsyncAnthropic | None = None

    @property
    def _client(self) -> AsyncAnthropic:
        if self._made is None:
            self._made = self._make()
        return self._made

    def _make(self) -> AsyncAnthropic:
        provider, transport = self._provider, self._transport
        timeout = httpx2.Timeout(
            connect=bounds.MODEL_CONNECT_S,
            read=bounds.MODEL_STALL_S,
            write=bounds.MODEL_WRITE_S,
            pool=bounds.MODEL_CONNECT_S,
        )
        own_transport: dict[str, Any] = {"transport": transport, "trust_env": False}
        return AsyncAnthropic(
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
    def demo(cls, provider: Provider, path: Path, betas: Sequence[str] = ()) -> Model:
        """The demo model, on a Unix socket of ours."""
        return cls(provider, DemoTransport(path, _tls()), betas)

    async def stream(self, body: bytes, betas: Sequence[str] = ()) -> AsyncIterator[dict[str, Any]]:
        """The raw events of one call, ping and error included. Raises `ModelError`.

        `body` is the request as it was written: the SDK's own methods would walk all of it again.
        `betas` go with this call beside those that always do.
        What goes wrong after `message_stop` is no error: the answer is whole.
        """
        try:
            stream = await self._client.post(
                "/v1/messages",
                cast_to=object,
                content=body,
                options={"headers": self._headers(betas)},
                stream=True,
                stream_cls=AsyncStream[object],
            )
            async with stream:
                content_type = stream.response.headers.get("content-type", "")
                if not content_type.startswith("text/event-stream"):
                    raise ModelError(
                        "protocol_error", f"the answer is {content_type or 'untyped'}, not a stream"
                    )
                events = AsyncStream.raw_events(stream.response)
                async with aclosing(events):  # pyright: ignore[reportArgumentType]
                    async for event in events:
                        parsed = json.loads(event.data)
                        yield parsed
                        if parsed["type"] == "message_stop":
                            await _read_to_the_end(events)
        except Exception as error:
            raise _translate(error) from error

    async def count_tokens(self, body: bytes, betas: Sequence[str] = ()) -> int:
        """Of the prompt in `body`, by the API. `betas` as in `stream`. Raises `ModelError`."""
        try:
            answer = await self._client.post(
                "/v1/messages/count_tokens",
                cast_to=httpx2.Response,
                content=body,
                options={"headers": self._headers(betas)},
            )
            return int(answer.json()["input_tokens"])
        except (KeyError, TypeError) as error:
            raise ModelError("protocol_error", f"not a count of tokens: {error!r}") from error
        except Exception as error:
            raise _translate(error) from error

    def _headers(self, more: Sequence[str] = ()) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        if betas := [*self._betas, *more]:
            headers["anthropic-beta"] = ",".join(betas)
        return headers

    async def close(self) -> None:
        if self._made is not None:
            await self._made.close()


async def _read_to_the_end(events: AsyncIterator[object]) -> None:
    """Nothing is expected there, but a connection that is not read to its end is not used again."""
    with suppress(httpx2.RequestError, TimeoutError):
        async with asyncio.timeout(bounds.MODEL_END_S):
            async for _ in events:
                pass


def _translate(error: Exception) -> Exception:
    """What the SDK raises is of before the answer; bare httpx2 errors are of its stream."""
    match error:
        case ModelError():
            return error
        case anthropic.APIStatusError():
            return _refusal(error)
        case anthropic.APITimeoutError():
            return ModelError("timeout_error", "the model did not answer in time")
        case anthropic.APIConnectionError():
            causes = _causes(error)
            for cause in causes:
                if isinstance(cause, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
                    return ModelError("client_error", f"the model's address is none: {cause}")
                if isinstance(cause, ssl.SSLCertVerificationError):
                    why = f"the model's certificate is not accepted: {cause}"
                    return ModelError(TLS_ERROR, why)
            why = next((str(cause) or type(cause).__name__ for cause in causes), str(error))
            return ModelError("connection_error", f"no connection to the model: {why}")
        case anthropic.AnthropicError():
            return ModelError("client_error", str(error))
        case httpx2.TimeoutException():
            return ModelError("timeout_error", "the model sent nothing for too long", status=200)
        case httpx2.RequestError():
            return ModelError("connection_error", f"the stream broke: {error!r}", status=200)
        case ValueError() | RecursionError():
            return ModelError("protocol_error", f"no usable JSON on the model's stream: {error}")
        case _:
            return error


def _refusal(error: anthropic.APIStatusError) -> ModelError:
    """An answer that is no stream; its body may be anything. Of a proxy's page nothing is shown."""
    response, body = error.response, cast("Any", error.body)
    try:
        details = body["error"]["details"]
    except (LookupError, TypeError):
        details = None
    page = f"HTTP {error.status_code} {response.reason_phrase}" if _is_page(body) else error.message
    return ModelError(
        str(error.type or f"http_{error.status_code}"),
        str(error.api_message or page),
        status=error.status_code,
        code=error.error_code,
        details=cast("dict[str, Any]", details) if isinstance(details, dict) else None,
        retry_after_s=retry_after(response.headers, time.time()),
        should_retry={"true": True, "false": False}.get(response.headers.get("x-should-retry", "")),
    )


def _is_page(body: object) -> bool:
    return isinstance(body, str) and body.startswith("<")


def _causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    cause = error.__cause__
    while cause is not None and cause not in found:
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return found


@cache
def _tls() -> ssl.SSLContext:
    """Building a context takes 25 ms; the zygote builds it once for all its workers."""
    return httpx2.create_ssl_context()
