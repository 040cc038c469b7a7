"""JSON-RPC 2.0 as ACP-C speaks it: what a message is, and the making of ours. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn, cast

Json = dict[str, Any]
Id = str | int | None

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
NOT_FOUND = -32002
"""acp.md §2.5."""
CANCEL = "$/cancel_request"

ID_CHARS = 1024
"""Longest request id: it is kept until the request is answered (the TypeScript SDK's own bound)."""


class RpcError(Exception):
    """A refusal the client is meant to see, as the JSON-RPC error it becomes."""

    def __init__(
        self, code: int, message: str, data: Json | None = None, request_id: Id = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.request_id = request_id
        """Of what was refused before anybody could take it for a request."""


class BatchRefused(RpcError):
    """HTTP has a status of its own for it."""


@dataclass(frozen=True)
class Request:
    id: Id
    method: str
    params: Json


@dataclass(frozen=True)
class Notification:
    method: str
    params: Json


@dataclass(frozen=True)
class Answer:
    """Of a client, to a request of ours; `error` is None if it was none."""

    id: Id
    result: Any
    error: Any = None


Incoming = Request | Notification | Answer


def parse(text: str | bytes) -> Incoming:
    """Raises `RpcError`: -32700 for what is no JSON, -32600 for what is no message."""
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise RpcError(PARSE_ERROR, "not JSON") from None
    if isinstance(value, list):
        raise BatchRefused(INVALID_REQUEST, "batches are not taken; send one message at a time")
    if not isinstance(value, dict):
        raise RpcError(INVALID_REQUEST, "not a JSON-RPC message")
    return _classify(cast("Json", value))


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _classify(message: Json) -> Incoming:
    request_id = message.get("id")
    if not _is_id(request_id):
        raise RpcError(
            INVALID_REQUEST, f"an id is an integer or a string of at most {ID_CHARS} characters"
        )
    if message.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, 'jsonrpc must be "2.0"', request_id=request_id)
    if "method" not in message and "id" in message and ("result" in message or "error" in message):
        return Answer(request_id, message.get("result"), message.get("error"))
    method = message.get("method")
    if not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, "neither a request nor an answer", request_id=request_id)
    params = message.get("params")
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "params must be an object", request_id=request_id)
    params = cast("Json", params)
    return Request(request_id, method, params) if "id" in message else Notification(method, params)


def _is_id(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= ID_CHARS
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def result(request_id: Id, value: Json) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "result": value}


def error(request_id: Id, refusal: RpcError) -> Json:
    body: Json = {"code": refusal.code, "message": refusal.message}
    if refusal.data is not None:
        body["data"] = refusal.data
    return {"jsonrpc": "2.0", "id": request_id, "error": body}


def request(request_id: Id, method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def notification(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def withdrawal(request_id: Id) -> Json:
    """Nobody waits for an answer to that request any more."""
    return notification(CANCEL, {"requestId": request_id})
