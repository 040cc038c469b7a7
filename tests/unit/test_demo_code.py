"""The demo model calls tools from code, by the API's rules about that."""

from __future__ import annotations

from typing import Any

import pytest

from session_worker.demo_model.conversation import segments
from session_worker.demo_model.intents import demo_script
from session_worker.demo_model.reply import Json, Reply, Request
from session_worker.demo_model.rules import check_request
from session_worker.demo_model.wire import identified, message_of, stream_events
from session_worker.programmatic import is_recursive
from sidecar.protocol.ptc import PROFILES, Profile

HEADERS = {"authorization": "Bearer k", "anthropic-version": "2026-10-21"}
CURRENT, SEED = (profile.tool_type for profile in PROFILES.values())
SCHEMA: Json = {"type": "object", "properties": {"command": {"type": "string"}}}
RECURSIVE = {"type": "object", "properties": {"a": {"$ref": "#"}}}


def tools(code_type: str | None, *callers: str, **more: Any) -> list[Json]:
    tool = {"name": "bash", "input_schema": SCHEMA} | more
    code = [{"type": code_type, "name": "code_execution"}] if code_type else []
    return [*code, tool | ({"allowed_callers": list(callers)} if callers else {})]


def body(offered: list[Json], *messages: Json, **more: Any) -> Json:
    said = messages or ({"role": "user", "content": "hi"},)
    return {"model": "m", "max_tokens": 9, "messages": list(said), "tools": offered} | more


def answered(request: Json, headers: Json) -> Json:
    """The whole message, after the request has passed the rules."""
    assert check_request(request, headers) is None
    answer = demo_script(Request(request, 1))
    assert isinstance(answer, Reply)
    digest = segments(request)[-1].digest
    return message_of(stream_events(identified(answer, digest), "msg", "m", {}))


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_the_calls_of_a_plan_are_made_by_one_code_round_by_round(profile: Profile) -> None:
    headers = HEADERS | {"anthropic-beta": ",".join(profile.betas)}
    offered = tools(profile.tool_type, profile.tool_type)
    talk: list[Json] = [{"role": "user", "content": "!code run `echo a`, then run `echo b`"}]
    waits = "pause_turn" if profile.betas else "tool_use"
    container: Json = {}
    answers: list[Json] = []
    for turn in range(2):
        answers.append(answered(body(offered, *talk, **container), headers))
        *_, call = answers[-1]["content"]
        assert answers[-1]["stop_reason"] == waits
        assert call["caller"]["type"] == profile.tool_type
        container = {"container": answers[-1]["container"]["id"]}
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": f"said {turn}"}
        talk += [
            {"role": "assistant", "content": answers[-1]["content"]},
            {"role": "user", "content": [result]},
        ]
    first, second = answers
    assert [b["type"] for b in first["content"]] == ["text", "server_tool_use", "tool_use"]
    assert [b["type"] for b in second["content"]] == ["tool_use"], "the code goes on"
    assert "bash(command='echo b')" in first["content"][1]["input"]["code"]
    last = answered(body(offered, *talk, **container), headers)
    code, words = last["content"]
    assert code["tool_use_id"] == first["content"][1]["id"]
    assert code["content"]["stdout"] == "said 0\nsaid 1\n"
    assert words["type"] == "text"
    assert (last["stop_reason"], last["container"]) == ("end_turn", first["container"])


@pytest.mark.parametrize("offered", [tools(None), tools(CURRENT), tools(CURRENT, "direct")])
def test_what_code_may_not_call_is_called_directly(offered: list[Json]) -> None:
    message = answered(body(offered, {"role": "user", "content": "!code run `echo a`"}), HEADERS)
    assert [block["type"] for block in message["content"]] == ["text", "tool_use"]
    assert "caller" not in message["content"][1] and "container" not in message


def test_results_for_code_cost_no_tokens() -> None:
    def chars(caller: Json) -> int:
        call = {"type": "tool_use", "id": "a", "name": "bash", "input": {}, "caller": caller}
        result = {"type": "tool_result", "tool_use_id": "a", "content": "x" * 1000}
        said = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        return sum(piece.chars for piece in segments(body([], *said)))

    assert (
        chars({"type": "direct", "tool_id": "s"}) - chars({"type": CURRENT, "tool_id": "s"}) > 900
    )


@pytest.mark.parametrize(
    ("request_body", "wording"),
    [
        (body(tools(None, CURRENT)), "no tool of type code_execution_20260120 is provided"),
        (body(tools(CURRENT, SEED)), "no tool of type code_execution_20250825 is provided"),
        (body(tools(SEED, SEED)), "allowed_callers: Extra inputs are not permitted"),
        (body(tools(CURRENT, CURRENT, strict=True)), "`strict` tools cannot be called from code"),
        (body(tools(CURRENT, CURRENT, input_schema=RECURSIVE)), "Circular $ref detected"),
        (
            body(tools(CURRENT, CURRENT), tool_choice={"type": "any"}),
            "tool_choice: forced tool use is not supported",
        ),
        (
            body(
                tools(CURRENT, CURRENT),
                tool_choice={"type": "auto", "disable_parallel_tool_use": True},
            ),
            "disable_parallel_tool_use is not supported",
        ),
    ],
)
def test_what_does_not_go_with_calls_from_code_is_refused(request_body: Json, wording: str) -> None:
    error = check_request(request_body, HEADERS)
    assert error and error.status == 400 and wording in error.message


def test_the_rules_find_a_circle_where_the_offer_would_have_left_the_tool_out() -> None:
    pair: Json = {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"items": {"$ref": "#/$defs/a"}}}
    for schema in (RECURSIVE, {"$ref": "#/$defs/a", "$defs": pair}):
        assert is_recursive(schema)
        refused = check_request(body(tools(CURRENT, CURRENT, input_schema=schema)), HEADERS)
        assert refused and "Circular" in refused.message
    shared: Json = {"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}}
    assert check_request(body(tools(CURRENT, CURRENT, input_schema=shared)), HEADERS) is None
