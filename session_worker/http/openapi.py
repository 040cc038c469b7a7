"""What the endpoint says of itself, as an OpenAPI 3.1 document, for `GET /openapi.json` (`app.py`).

Made of the table of all routes (`operations.py`) and the models of bodies. Pure: it never looks at
the session, so it is the same for all.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from session_worker.http.access import WRITES
from session_worker.http.operations import (
    ANY,
    ANY_WRITE,
    JSON,
    OPERATIONS,
    REFUSALS,
    SSE,
    Models,
    Operation,
    Reply,
)
from session_worker.http.shapes import Error
from sidecar.protocol import VERSION

Json = dict[str, Any]
Refs = Mapping[type[BaseModel], Json]

_ABOUT = """\
The Agent Communication Protocol (ACP-R), the Agent Client Protocol (ACP-C), and what is ours. Over
the Unix socket the peer's user is the key, over TCP the token of the session is. HEAD is answered
where GET is, but for streams."""
_TEXT = {"type": "string"}


@functools.cache
def document() -> Json:
    schemas, refs = _schemas()
    paths: dict[str, Json] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, refs)
    refusals = {
        _refused(status): _reply(Reply(says, {JSON: (Error,)}), refs)
        for status, says in REFUSALS.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "A session of Sidecar", "version": VERSION, "description": _ABOUT},
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": refusals,
            "schemas": schemas,
        },
    }


def _schemas() -> tuple[Json, Refs]:
    """All models that the table names, and how to refer to each."""
    models: dict[type[BaseModel], JsonSchemaMode] = {Error: "serialization"}
    for operation in OPERATIONS:
        models |= dict.fromkeys(operation.body, "validation")
        for reply in operation.replies.values():
            for told in reply.content.values():
                models |= dict.fromkeys(told, "serialization")
    refs, defined = models_json_schema(
        list(models.items()), ref_template="#/components/schemas/{model}"
    )
    return defined["$defs"], {model: refs[model, mode] for model, mode in models.items()}


def _operation(operation: Operation, refs: Refs) -> Json:
    in_path = re.findall(r"{(\w+)}", operation.path)
    refusals = {*ANY, *operation.refusals, *(ANY_WRITE if operation.method in WRITES else ())}
    told: Json = {
        "operationId": operation.name,
        "summary": operation.says,
        "parameters": [
            *({"name": n, "in": "path", "required": True, "schema": _TEXT} for n in in_path),
            *(
                {
                    "name": parameter.name,
                    "in": parameter.where,
                    "required": parameter.required,
                    "description": parameter.says,
                    "schema": parameter.schema,
                }
                for parameter in operation.parameters
            ),
        ],
        "responses": {
            **{
                str(status): {"$ref": f"#/components/responses/{_refused(status)}"}
                for status in sorted(refusals)
            },
            **{str(status): _reply(reply, refs) for status, reply in operation.replies.items()},
        },
    }
    if operation.body:
        content: Json = {"schema": _one_of(operation.body, refs)}
        if operation.example is not None:
            content["example"] = operation.example
        told["requestBody"] = {"required": operation.body_required, "content": {JSON: content}}
    return told


def _refused(status: int) -> str:
    return f"Refused{status}"


def _reply(reply: Reply, refs: Refs) -> Json:
    told: Json = {"description": reply.says}
    if reply.content:
        told["content"] = {
            media_type: {"schema": _content(media_type, models, refs)}
            for media_type, models in reply.content.items()
        }
    if reply.header:
        told["headers"] = {reply.header: {"schema": _TEXT}}
    return told


def _content(media_type: str, models: Models, refs: Refs) -> Json:
    if not models:
        return {"type": "object"} if media_type == JSON else _TEXT
    told = _one_of(models, refs)
    if media_type != SSE:
        return told
    # of one event, as is the custom: before 3.2 OpenAPI has no word for a stream
    data = {**_TEXT, "contentMediaType": JSON, "contentSchema": told}
    members = {"id": _TEXT, "event": _TEXT, "data": data}
    return {"type": "object", "required": ["data"], "properties": members}


def _one_of(models: Models, refs: Refs) -> Json:
    return refs[models[0]] if len(models) == 1 else {"anyOf": [refs[m] for m in models]}
