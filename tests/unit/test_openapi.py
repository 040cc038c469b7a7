"""The OpenAPI document is one, and names every route and every refusal that there is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest

from session_worker import http
from session_worker.http.app import build_app
from session_worker.http.openapi import document
from session_worker.http.operations import REFUSALS
from session_worker.http.shapes import Error

SOURCES = Path(http.__file__).parent.rglob("*.py")
Route = tuple[str, str]


def routed() -> set[Route]:
    return {(r.method, r.resource.canonical) for r in build_app().router.routes() if r.resource}


def described() -> dict[Route, Any]:
    return {
        (method.upper(), path): operation
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    }


def nodes(value: Any) -> Iterator[Any]:
    yield value
    children = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for child in children:
            yield from nodes(child)


def resolve(ref: str) -> Any:
    found: Any = document()
    for name in ref.removeprefix("#/").split("/"):
        found = found[name]
    return found


def test_every_route_is_described_and_nothing_else_is() -> None:
    assert {route for route in routed() if route[0] != "HEAD"} == described().keys()


def test_a_route_answers_head_unless_it_streams() -> None:
    """The body of a stream would follow all the same, and without end."""
    gets = {path: operation for (method, path), operation in described().items() if method == "GET"}
    streams = {
        p for p, o in gets.items() if "text/event-stream" in o["responses"]["200"]["content"]
    }
    assert streams == {"/sessions/{session_id}/events", "/acp"}
    assert {path for method, path in routed() if method == "HEAD"} == gets.keys() - streams


def test_every_reference_leads_somewhere_and_every_schema_is_used() -> None:
    refs = {n["$ref"] for n in nodes(document()) if isinstance(n, dict) and "$ref" in n}
    assert all(resolve(ref) for ref in refs)
    components = document()["components"]
    named = {
        f"#/components/{kind}/{n}" for kind in ("schemas", "responses") for n in components[kind]
    }
    assert named == refs


def test_operations_are_named_once_and_say_which_parameters_are_in_their_path() -> None:
    names = [operation["operationId"] for operation in described().values()]
    assert len(names) == len(set(names))
    for (_, path), operation in described().items():
        parameters = [(p["in"], p["name"]) for p in operation["parameters"]]
        assert len(parameters) == len(set(parameters))
        in_path = {name for where, name in parameters if where == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", path))


def test_examples_are_what_the_routes_take() -> None:
    contents = [o["requestBody"]["content"] for o in described().values() if "requestBody" in o]
    examples = [c["application/json"] for c in contents if "example" in c["application/json"]]
    assert len(examples) == 4
    for content in examples:
        schema = content["schema"] | {"components": document()["components"]}
        jsonschema.Draft202012Validator(schema).validate(content["example"])


def test_the_document_knows_every_status_and_code_of_a_refusal() -> None:
    raised: set[tuple[Any, Any]] = set()
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "HttpError":
                status, code = (a.value for a in node.args[:2] if isinstance(a, ast.Constant))
                raised.add((status, code))
    assert len(raised) > 10
    assert {status for status, _ in raised} | {500} == REFUSALS.keys()
    codes = set(get_args(Error.model_fields["code"].annotation))
    assert {code for _, code in raised} | {"method_not_allowed"} == codes


def test_it_is_openapi() -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(document(), cls=validator.OpenAPIV31SpecValidator)
