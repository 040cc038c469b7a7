"""The JSON Schemas that servers give their tools: as the API takes them, and what fits them.

One schema that the API refuses would fail every request of the session, so they are looked at
first. Imports jsonschema when it is first needed: a session without servers does not pay for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from sidecar.protocol import mcp_bounds

_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_NOT_AT_THE_TOP = ("allOf", "anyOf", "oneOf")
"""The API refuses these there. They say what goes with what, which the server checks itself."""

Schema = Mapping[str, Any]


def usable(schema: Schema) -> dict[str, Any]:
    """The schema as the API takes it. Raises ValueError: why it cannot be used."""
    from jsonschema import Draft202012Validator, SchemaError

    if schema.get("type", "object") != "object":
        raise ValueError("its input is no object")
    kept: dict[str, Any] = {"properties": {}, **schema, "type": "object"}
    for key in ("$schema", "$id", *_NOT_AT_THE_TOP):
        kept.pop(key, None)
    try:
        Draft202012Validator.check_schema(kept)
        size = len(json.dumps(kept))
    except (SchemaError, RecursionError):
        raise ValueError("its schema is invalid") from None
    if size > mcp_bounds.MCP_SCHEMA_BYTES:
        raise ValueError(f"its schema has {size} bytes, more than {mcp_bounds.MCP_SCHEMA_BYTES}")
    if wrong := [name for name in kept["properties"] if not _PROPERTY.fullmatch(name)]:
        raise ValueError(f"the API takes no property named {wrong[0][:64]!r}")
    return kept


def misfit(schema: Schema, value: dict[str, Any]) -> str:
    """What keeps `value` from fitting a `usable` schema; empty if nothing does. References lead
    nowhere but into the schema itself."""
    from jsonschema import Draft202012Validator
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    validator = Draft202012Validator(dict(schema), registry=Registry())
    try:
        found: Iterator[Any] = validator.iter_errors(value)  # pyright: ignore[reportUnknownMemberType]
        errors = sorted(found, key=lambda error: list(map(str, error.path)))
    except (Unresolvable, RecursionError):
        return ""  # the server knows what it meant, and judges itself
    reasons = (
        f"{'.'.join(map(str, error.path)) or 'input'}: {error.message}"
        for error in errors[: mcp_bounds.MCP_MISFITS_TOLD]
    )
    return "; ".join(reasons)
