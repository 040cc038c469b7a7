"""A tool as the Messages API wants it advertised.

Called once per session, before its first model call. Never says more than plain types: `strict`
mode knows few keywords, and pydantic enforces ranges and formats anyway.
"""

from __future__ import annotations

from typing import Any

from session_worker.tools.spec import ToolSpec

DROPPED = {
    "$defs", "discriminator", "exclusiveMaximum", "exclusiveMinimum", "format", "maxItems",
    "maxLength", "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum",
    "multipleOf", "pattern", "title", "uniqueItems",
}  # fmt: skip


def tool_schema(spec: ToolSpec[Any]) -> dict[str, Any]:
    """One entry of `tools`; the same bytes every time, so that the prompt cache holds."""
    schema = spec.input_schema
    if schema is None:
        made = spec.params.model_json_schema()
        schema = _plain(made, made.get("$defs", {}))
    return {"description": spec.description, "input_schema": schema, "name": spec.name}


def _plain(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """`$ref` inlined, keys sorted, objects closed; an optional field is just left out, not null."""
    rest = {key: value for key, value in schema.items() if key not in {"$ref", "anyOf"}}
    if "$ref" in schema:
        return _plain(definitions[schema["$ref"].rpartition("/")[2]] | rest, definitions)
    options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
    if len(options) == 1:
        return _plain(options[0] | rest, definitions)
    if options:
        rest["anyOf"] = options
    if "properties" in rest:
        rest["additionalProperties"] = False
    return {
        key: _inner(key, value, definitions)
        for key, value in sorted(rest.items())
        if key not in DROPPED and (key, value) != ("default", None)
    }


def _inner(key: str, value: Any, definitions: dict[str, Any]) -> Any:
    if key == "properties":
        return {name: _plain(value[name], definitions) for name in sorted(value)}
    if key in {"anyOf", "oneOf", "prefixItems"}:
        return [_plain(option, definitions) for option in value]
    if key in {"items", "additionalProperties"} and value not in (True, False):
        return _plain(value, definitions)
    return value
