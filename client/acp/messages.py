"""JSON-RPC messages of the Agent Client Protocol: read, told apart, answered. Pure."""

from __future__ import annotations

import json
from typing import Any, NoReturn, cast

from sidecar.protocol.errors import SidecarError
from sidecar.protocol.framing import encode

Json = dict[str, Any]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
NOT_FOUND = -32002
"""A session, here; ACP's own code."""
CANCEL_REQUEST = "$/cancel_request"
ID_CHARS = 1024
"""Longest request id: what workers take."""

_BY_CODE = {"session_not_found": NOT_FOUND, "invalid_params": INVALID_PARAMS}


class Refused(Exception):
    """What a request is answered with."""

    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.error: Json = {"code": code, "message": message} | ({"data": data} if data else {})


def refusal(error: SidecarError) -> Refused:
    """What an editor is told of an error of ours; people read its message."""
    code = _BY_CODE.get(error.code, INTERNAL_ERROR)
    return Refused(code, error.message, {**error.data, "code": error.code, "hint": error.hint})


def parse(line: bytes | str) -> Json:
    """The message of one line. Raises `Refused`.

    What a worker could not answer under its id goes no further: nobody would ever be told.
    """
    try:
        text = line.decode() if isinstance(line, bytes) else line
        value: Any = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise Refused(PARSE_ERROR, "this line is not one JSON value in UTF-8") from None
    if not isinstance(value, dict):
        raise Refused(INVALID_REQUEST, "a message is one JSON object; batches are not supported")
    message = cast(Json, value)
    request_id, method = message.get("id"), message.get("method", "")
    if isinstance(request_id, bool) or not isinstance(request_id, str | int | None):
        raise Refused(INVALID_REQUEST, "an id is an integer or a string")
    if len(str(request_id)) > ID_CHARS:
        raise Refused(INVALID_REQUEST, f"an id has {ID_CHARS} characters at most")
    if not isinstance(method, str):
        raise Refused(INVALID_REQUEST, "a method is a string")
    return message


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def params_of(message: Json) -> Json:
    """Its params; empty if they are no object."""
    params = message.get("params")
    return cast(Json, params) if isinstance(params, dict) else {}


def key_of(request_id: Any) -> str:
    """An id to look things up by: 1, "1" and true are three."""
    return json.dumps(request_id)


def request(request_id: Any, method: str, params: Json) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def notification(method: str, params: Json) -> bytes:
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def answer(request_id: Any, result: Json) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def refuse(request_id: Any, refused: Refused) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "error": refused.error})
