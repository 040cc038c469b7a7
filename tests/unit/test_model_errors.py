"""Whatever the SDK and the network raise arrives as one typed error. No network is used."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from email.utils import formatdate
from typing import Any

import httpx2
import pytest

from session_worker.model import Model
from session_worker.model_error import ModelError
from session_worker.provider import Provider

Handler = Callable[[httpx2.Request], httpx2.Response]
EVENTS = {"content-type": "text/event-stream"}
START = b'event: message_start\ndata: {"type":"message_start"}\n\n'


def failure(handler: Handler) -> ModelError:
    """What one call ends in."""

    async def call() -> None:
        model = Model(Provider("m", api_key="k"), httpx2.MockTransport(handler))
        try:
            async for _ in model.stream(b"{}"):
                pass
        finally:
            await model.close()

    with pytest.raises(ModelError) as raised:
        asyncio.run(call())
    return raised.value


def answered(status: int, body: Any = None, **headers: str) -> ModelError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if isinstance(body, str):
        return failure(lambda _: httpx2.Response(status, headers=named, text=body))
    return failure(lambda _: httpx2.Response(status, headers=named, json=body))


def broken(error: Exception) -> ModelError:
    """A stream that raises after its first event."""

    async def body() -> AsyncIterator[bytes]:
        yield START
        raise error

    return failure(lambda _: httpx2.Response(200, headers=EVENTS, content=body()))


def unreachable(error: Exception) -> ModelError:
    def handler(_: httpx2.Request) -> httpx2.Response:
        raise error

    return failure(handler)


def refusal(kind: str, message: str, **details: Any) -> dict[str, Any]:
    error: dict[str, Any] = {"type": kind, "message": message}
    return {"type": "error", "error": error | ({"details": details} if details else {})}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (409, "conflict_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_a_refusal_keeps_its_type_status_and_words(status: int, kind: str) -> None:
    error = answered(status, refusal(kind, "in the API's words"))
    assert (error.kind, error.status, error.message) == (kind, status, "in the API's words")
    assert (error.code, error.details, error.retry_after_s) == (None, None, None)
    assert (error.should_retry, error.streamed) == (None, False)


def test_a_code_comes_with_its_details() -> None:
    details: dict[str, Any] = {"error_code": "image_dimensions_too_large", "paths": ["messages.0"]}
    error = answered(400, refusal("invalid_request_error", "too large", **details))
    assert (error.code, error.details) == ("image_dimensions_too_large", details)


def test_the_server_may_say_when_and_whether_to_try_again() -> None:
    busy = refusal("rate_limit_error", "slow down")
    assert answered(429, busy, retry_after="7").retry_after_s == 7
    assert answered(429, busy, retry_after_ms="1500").retry_after_s == 1.5
    asked = answered(429, busy, retry_after=formatdate(4e9, usegmt=True)).retry_after_s
    assert asked
    assert asked > 1e9
    assert answered(429, busy, x_should_retry="false").should_retry is False
    assert answered(400, busy, x_should_retry="true").should_retry is True
    assert answered(400, busy, x_should_retry="perhaps").should_retry is None


def test_the_page_of_a_proxy_is_not_shown() -> None:
    error = answered(502, "<html><body>nginx</body></html>", content_type="text/html")
    assert (error.kind, error.status, error.message) == ("http_502", 502, "HTTP 502 Bad Gateway")


@pytest.mark.parametrize("body", ["busy", {"error": "busy"}, ["busy"], {"error": {"type": "busy"}}])
def test_the_words_of_other_servers_are_shown(body: Any) -> None:
    error = answered(503, body)
    assert error.status == 503
    assert "busy" in error.message


@pytest.mark.parametrize("odd", [{"type": 7, "message": ["x"]}, {"details": "x"}, 7, None, {}])
def test_an_error_object_of_another_shape_is_still_an_error(odd: Any) -> None:
    error = answered(500, {"error": odd})
    assert isinstance(error.kind, str)
    assert isinstance(error.message, str)
    assert (error.status, error.details) == (500, None)


def test_a_redirect_is_an_error() -> None:
    error = answered(302, "", location="https://elsewhere.example.org")
    assert (error.kind, error.status) == ("http_302", 302)


def test_no_connection_says_why() -> None:
    error = unreachable(httpx2.ConnectError("Name or service not known"))
    assert (error.kind, error.status) == ("connection_error", None)
    assert error.message == "no connection to the model: Name or service not known"
    assert "ReadError" in unreachable(httpx2.ReadError("")).message


def test_no_answer_in_time_is_not_a_broken_answer() -> None:
    error = unreachable(httpx2.ConnectTimeout("x"))
    assert (error.kind, error.status) == ("timeout_error", None)


def test_a_bad_certificate_is_told_from_other_connection_errors() -> None:
    connect = httpx2.ConnectError("outer")
    connect.__cause__ = OSError("between")
    connect.__cause__.__context__ = ssl.SSLCertVerificationError("self-signed certificate")
    error = unreachable(connect)
    assert error.kind == "tls_error"
    assert "self-signed certificate" in error.message
    connect.__cause__.__context__ = ssl.SSLError("wrong version number")
    assert unreachable(connect).kind == "connection_error"


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (httpx2.RemoteProtocolError("peer closed connection"), "connection_error"),
        (httpx2.ReadError(""), "connection_error"),
        (httpx2.DecodingError("bad gzip"), "connection_error"),
        (httpx2.ReadTimeout(""), "timeout_error"),
    ],
)
def test_an_answer_that_broke_off_has_the_status_of_an_answer(cause: Exception, kind: str) -> None:
    error = broken(cause)
    assert (error.kind, error.status) == (kind, 200)


def test_what_is_no_event_stream_breaks_the_protocol() -> None:
    page = failure(lambda _: httpx2.Response(200, html="<html>sign in</html>"))
    junk = failure(lambda _: httpx2.Response(200, headers=EVENTS, text="data: {half\n\n"))
    assert (page.kind, junk.kind) == ("protocol_error", "protocol_error")
