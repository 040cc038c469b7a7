"""The official schema of ACP-C, version 1, against which tests hold what sessions say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator

Json = dict[str, Any]
_SCHEMA = json.loads((Path(__file__).parents[1] / "data/acp-schema.json").read_text())


def _validators(suffix: str) -> dict[str, Validator]:
    """By method."""
    defs = [d for name, d in _SCHEMA["$defs"].items() if name.endswith(suffix)]
    return {
        definition["x-method"]: Draft202012Validator({**_SCHEMA, "anyOf": [definition]})
        for definition in defs
        if "x-method" in definition
    }


_MESSAGE = Draft202012Validator(_SCHEMA)
_REQUESTS, _NOTIFICATIONS = _validators("Request"), _validators("Notification")
_RESPONSES = _validators("Response")


def check(message: Json, asked: str = "") -> None:
    """Raises unless the schema allows it; `asked` is the method that a response answers."""
    _MESSAGE.validate(message)
    method = message.get("method", "")
    if "id" in message and method:
        _REQUESTS[method].validate(message["params"])
    elif method:
        _NOTIFICATIONS[method].validate(message["params"])
    elif "result" in message:
        _RESPONSES[asked].validate(message["result"])


def check_all(said: list[Json], heard: list[Json]) -> None:
    """The same of all that a client of one connection heard."""
    asked = {
        message["id"]: message["method"]
        for message in said
        if "method" in message and "id" in message
    }
    for message in heard:
        check(message, asked.get(message.get("id"), ""))
