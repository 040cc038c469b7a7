"""From one parsed JSON-RPC value to its reply: demultiplexer, validator and exception wall
around `jsonrpcserver` (anthropic.md §7 has what it does without them).

Importing that and `jsonschema` is half of a daemon's start. So the first request does it that needs
them; `sidecar.ping`, which only asks whether anybody is there, is answered without.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sidecar.protocol.errors import SidecarError
from sidecar.protocol.methods import METHODS, Method

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

log = logging.getLogger(__name__)

C = TypeVar("C")
Handler = Callable[[C, dict[str, Any]], Awaitable[Any]]
Reply = dict[str, Any] | list[dict[str, Any]] | None
_MEMBERS = {"jsonrpc", "method", "params", "id"}


def walled(name: str, handler: Handler[C]) -> Callable[..., Awaitable[Any]]:
    """`handler` for jsonrpcserver: params validated and completed, every exception translated.

    This is the control plane's one translation point: no text of an unexpected exception passes.
    """
    method = METHODS[name]

    async def call(context: C, **params: Any) -> Any:
        from jsonrpcserver import Error, Success

        try:
            _validate(method, params)
            return Success(await handler(context, method.with_defaults(params)))
        except SidecarError as error:
            wire = error.to_wire()
        except Exception:
            log.exception("%s failed", name)
            wire = SidecarError(
                "internal_error", f"{name} failed inside the daemon", "see daemon.log"
            ).to_wire()
        return Error(wire["code"], wire["message"], wire["data"])

    return call


@cache
def _validator(name: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(METHODS[name].schema)


def _validate(method: Method, params: dict[str, Any]) -> None:
    from jsonschema.exceptions import best_match  # pyright: ignore[reportUnknownVariableType]

    found = _validator(method.name).iter_errors(params)  # pyright: ignore
    errors = cast("list[ValidationError]", list(found))
    problem = cast("ValidationError | None", best_match(errors))
    if problem is None:
        return
    where = ".".join(map(str, problem.absolute_path))
    usage = ", ".join(n + ("*" if n in method.required else "") for n in method.params)
    raise SidecarError(
        "invalid_params",
        f"{method.name}: {where + ': ' if where else ''}{problem.message[:500]}",
        f"params: {usage or 'none'} (* required)",
        param=where or None,
    )


async def answer(value: Any, methods: Mapping[str, Any], context: Any) -> Reply:
    """The reply to one line's value, a batch included; None if nothing is to be said."""
    if not isinstance(value, list):
        return await _answer_one(value, methods, context)
    batch = cast("list[Any]", value)
    if not batch:
        return _refusal(None, SidecarError("invalid_request", "an empty batch", "send a request"))
    replies = await asyncio.gather(*(_answer_one(item, methods, context) for item in batch))
    return [reply for reply in replies if reply is not None] or None


async def _answer_one(
    value: Any, methods: Mapping[str, Any], context: Any
) -> dict[str, Any] | None:
    request = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if "method" not in request and ("result" in request or "error" in request):
        return None  # a peer's response: answering it would start a ping-pong of errors
    request_id = request.get("id")
    problem = _problem(value, request)
    if problem is not None:
        plain = isinstance(request_id, str | int) and not isinstance(request_id, bool)
        return _refusal(request_id if plain else None, problem)
    if request["method"] == "sidecar.ping" and not request.get("params"):
        return {"jsonrpc": "2.0", "result": {}, "id": request_id} if "id" in request else None
    from jsonrpcserver.async_main import dispatch_to_serializable

    reply = await dispatch_to_serializable(
        cast("str", request),
        cast("Any", methods),
        context=context,
        deserializer=_as_it_is,
        validator=_as_it_is,
    )
    return cast("dict[str, Any] | None", reply)


def _as_it_is(value: Any) -> Any:
    """jsonrpcserver parses and checks nothing: both have been done, with better answers."""
    return value


def _problem(value: Any, request: dict[str, Any]) -> SidecarError | None:
    if not isinstance(value, dict):
        return SidecarError("invalid_request", "a request is a JSON object", _EXAMPLE)
    if request.get("jsonrpc") != "2.0" or not isinstance(request.get("method"), str):
        return SidecarError(
            "invalid_request", "jsonrpc must be '2.0' and method a string", _EXAMPLE
        )
    if extra := sorted(set(request) - _MEMBERS):
        return SidecarError("invalid_request", f"unknown member {extra[0]!r}", _EXAMPLE)
    request_id = request.get("id")
    if isinstance(request_id, bool) or not isinstance(request_id, str | int | float | None):
        return SidecarError("invalid_request", "id must be a string or a number", _EXAMPLE)
    if request["method"] not in METHODS:
        return SidecarError(
            "method_not_found",
            f"no method {request['method'][:100]!r}",
            f"methods: {', '.join(METHODS)}",
        )
    if not isinstance(request.get("params", {}), dict):
        return SidecarError("invalid_params", "params must be an object", _EXAMPLE)
    return None


_EXAMPLE = '{"jsonrpc":"2.0","id":1,"method":"sidecar.ping"}'


def _refusal(request_id: Any, error: SidecarError) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "error": error.to_wire(), "id": request_id}


def parse_refusal() -> dict[str, Any]:
    """The reply to a line that is no JSON in UTF-8."""
    return _refusal(None, SidecarError("parse_error", "the line is not JSON in UTF-8", _EXAMPLE))


def stream_refusal(error: SidecarError) -> dict[str, Any]:
    """The last reply on a connection that cannot go on."""
    return _refusal(None, error)
