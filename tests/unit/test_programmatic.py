"""Which tools code may call, and how a session offers that."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_worker.demo_model.rules import check_request
from session_worker.programmatic import is_recursive, may_be_called, with_code
from session_worker.tools.toolbox import SCHEMAS
from sidecar.protocol.ptc import PROFILES, Profile

Json = dict[str, Any]

CODE = "code_execution_20260120"
TREE = {"$ref": "#/$defs/node"}
RECURSIVE: list[Json] = [
    {"$ref": "#"},
    {"properties": {"child": {"$ref": "#"}}},
    {"properties": {"a": TREE}, "$defs": {"node": {"properties": {"next": TREE}}}},
    {"properties": {"a": TREE}, "$defs": {"node": {"items": [{"anyOf": [{"not": TREE}]}]}}},
    {
        "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"items": {"$ref": "#/$defs/a"}}},
    },
    {"definitions": {"a/b~c": {"items": {"$ref": "#/definitions/a~1b~0c"}}}},
    {"definitions": {"a b": {"items": {"$ref": "#/definitions/a%20b"}}}},
    {"$defs": {"a": {"$anchor": "me", "items": {"$ref": "#me"}}}},
    {"$defs": {"a": {"$dynamicAnchor": "me", "items": {"$dynamicRef": "#me"}}}},
    {"items": {"$recursiveRef": "#"}},
    {"properties": {"a": {"allOf": [{"$ref": "#/properties"}]}}},
    {"properties": {"a": {"allOf": [{}, {"$ref": "#/properties/a/allOf/1"}]}}},
]
"""Directly, or by way of others."""
NOT_FOLLOWED: list[Json] = [
    {"items": {"$ref": "https://example.org/schema.json"}},
    {"items": {"$ref": "other.json#/a"}},
    {"items": {"$ref": "#/nowhere"}},
    {"items": {"$ref": "#nowhere"}},
    {"prefixItems": [{"$ref": "#/prefixItems/9"}]},
    {"type": "object", "items": {"$ref": "#/type"}},
    {"$id": "https://example.org/a", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {}}},
]
"""Who knows where they lead."""
PLAIN: list[Any] = [
    {},
    True,
    {"type": "object", "properties": {}},
    {"$id": "https://example.org/a", "items": {}},
    {"properties": {"a": TREE, "b": TREE}, "$defs": {"node": {"type": "string"}}},
    {"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}}},
    {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"items": TREE}, "node": {}}},
    {"properties": {"a": {"$ref": "#me"}}, "$defs": {"node": {"$anchor": "me"}}},
]


def tool(schema: Any = None, **more: Any) -> Json:
    return {"name": "t", "description": "d", "input_schema": schema or {"type": "object"}, **more}


@pytest.mark.parametrize("schema", RECURSIVE + NOT_FOLLOWED)
def test_a_schema_that_leads_back_to_itself_or_may_do_so_is_recursive(schema: Json) -> None:
    assert is_recursive(schema)
    assert not may_be_called(tool(schema))


@pytest.mark.parametrize("schema", PLAIN)
def test_a_schema_whose_references_end_is_not(schema: Any) -> None:
    assert not is_recursive(schema)


@st.composite
def linked(draw: st.DrawFn) -> tuple[Json, list[tuple[int, int]]]:
    """A schema of definitions that refer to each other, and who refers to whom."""
    count = draw(st.integers(1, 6))
    among = st.integers(0, count - 1)
    links = draw(st.lists(st.tuples(among, among), max_size=12))
    definitions: Json = {str(n): {"type": "object", "properties": {}} for n in range(count)}
    for number, (source, target) in enumerate(links):
        reference: Json = {"$ref": f"#/$defs/{target}"}
        for wrap in draw(st.lists(st.sampled_from(["items", "not", "anyOf"]), max_size=3)):
            reference = {wrap: [reference] if wrap == "anyOf" else reference}
        definitions[str(source)]["properties"][f"p{number}"] = reference
    return {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/0"}},
        "$defs": definitions,
    }, links


@given(linked())
def test_a_schema_is_recursive_exactly_if_its_definitions_are(
    drawn: tuple[Json, list[tuple[int, int]]],
) -> None:
    schema, links = drawn
    reached = {n: {n} for pair in links for n in pair}
    for _ in reached:
        for source, target in links:
            reached[source] |= reached[target]
    assert is_recursive(schema) is any(source in reached[target] for source, target in links)


@pytest.mark.parametrize("length", [1, 2, 5_000])
@pytest.mark.parametrize("closed", [False, True])
def test_neither_depth_nor_a_long_chain_is_too_much(length: int, closed: bool) -> None:
    chain = {str(n): {"items": {"$ref": f"#/$defs/{n + 1}"}} for n in range(length)}
    last = {"items": {"$ref": "#/$defs/0"}} if closed else {}
    assert is_recursive({"$defs": chain | {str(length): last}}) is closed
    deep: Json = {}
    for _ in range(length):
        deep = {"items": deep}
    assert not is_recursive(deep)


@pytest.mark.parametrize(
    ("offered", "may"),
    [
        (tool(), True),
        (tool(type="custom"), True),
        (tool(strict=False), True),
        (tool(strict=True), False),
        ({"type": "mcp_toolset", "mcp_server_name": "s"}, False),
        ({"type": "web_search_20260318", "name": "web_search"}, False),
        (tool(type="bash_20250124"), False),
    ],
)
def test_only_plain_tools_of_the_client_are_open_to_code(offered: Json, may: bool) -> None:
    assert may_be_called(offered) is may
    code, marked = with_code([offered], CODE)
    assert code == {"type": CODE, "name": "code_execution"}
    assert marked == (offered | {"allowed_callers": [CODE]} if may else offered)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_our_own_tools_may_all_be_called_and_the_api_takes_the_request(profile: Profile) -> None:
    tools = with_code(SCHEMAS, profile.tool_type)
    assert [t.get("allowed_callers") for t in tools[1:]] == [[profile.tool_type]] * len(SCHEMAS)
    assert json.dumps(tools) == json.dumps(with_code(SCHEMAS, profile.tool_type))
    assert "allowed_callers" not in json.dumps(SCHEMAS)
    messages = [{"role": "user", "content": "hi"}]
    body = {"model": "m", "max_tokens": 9, "messages": messages, "tools": tools}
    headers = {"x-api-key": "k", "anthropic-version": "1"}
    betas = {"anthropic-beta": ",".join(profile.betas)}
    assert check_request(body, headers | betas) is None
    assert bool(check_request(body, headers)) is bool(profile.betas)
