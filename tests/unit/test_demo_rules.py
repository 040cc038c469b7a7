"""The demo model refuses what the Messages API refuses, in the same words."""

from __future__ import annotations

from typing import Any

import pytest

from session_worker.demo_model.conversation import segments, signature
from session_worker.demo_model.reply import ApiError
from session_worker.demo_model.rules import check_request

HEADERS = {"authorization": "Bearer k", "anthropic-version": "2026-10-21"}
PTC = {"type": "code_execution_20260120", "tool_id": "srv1"}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def use(call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "bash", "input": {}, **more}


def result(call_id: str, content: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "input_schema": {"type": "object"}, **more}


def body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    said = messages or (user(text("hi")),)
    return {"model": "m", "max_tokens": 9, "messages": list(said)} | more


def refusal(request: Any, **headers: str) -> ApiError | None:
    return check_request(request, headers or HEADERS)


ANCHOR: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}

CALLS_ANSWERED = (user(text("go")), assistant(use("a"), use("b")), user(result("b"), result("a")))
LATE_RESULT = (user(text("go")), assistant(use("a")), user(text("hm"), result("a")))
SERVER_CALL = {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {}}
SERVER_RESULT = {"type": "web_search_tool_result", "tool_use_id": "srv1", "content": []}
STRICT = "claude-sonnet-5-5"
IMAGE = {"type": "image", "source": {"type": "url", "url": "u"}}
SERVER_AND_CLIENT = (user(text("go")), assistant(SERVER_CALL, use("a")))


@pytest.mark.parametrize(
    "request_body",
    [
        body(),
        body({"role": "user", "content": "a plain string"}),
        body(*CALLS_ANSWERED, assistant(text("done"))),
        body(*CALLS_ANSWERED[:2], user(result("a", ""), result("b", " "), text("and then?"))),
        body(user(text("go")), assistant(SERVER_CALL, SERVER_RESULT), user(text("more"))),
        body(user(text("go")), assistant(SERVER_CALL)),
        body(*SERVER_AND_CLIENT, user(result("a")), assistant(SERVER_RESULT, text("found"))),
        body(user(text("go")), assistant({"type": "brand_new", "x": 1}), user(text("ok"))),
        body(user(text("go")), {"role": "system", "content": "a reminder"}),
        body(user(text("go")), assistant()),
        body(
            user(text("go")),
            assistant({"type": "thinking", "thinking": "hm", "signature": "of a real model"}),
            user(text("ok")),
        ),
        body(user(text("go")), assistant(SERVER_CALL), model=STRICT),
        body(user(text("go")), assistant(SERVER_CALL, text("so"), SERVER_RESULT), model=STRICT),
        body(user(text("go")), assistant(text("so")), model="claude-sonnet-4-5"),
        body(system="be brief", tools=[tool("bash"), {"type": "web_search_20260318", "name": "w"}]),
        body(user(*[text("x", **ANCHOR)] * 3), system=[text("s", **HOUR)]),
    ],
)
def test_a_sound_request_is_accepted(request_body: dict[str, Any]) -> None:
    assert refusal(request_body) is None


@pytest.mark.parametrize(
    ("request_body", "wording"),
    [
        ([], "Input should be a valid dictionary"),
        ({"model": "m", "max_tokens": 9}, "messages: Field required"),
        ({"model": "m", "messages": []}, "max_tokens: Field required"),
        ({"max_tokens": 9, "messages": []}, "model: Field required"),
        (body() | {"max_tokens": 0}, "max_tokens: Input should be greater than or equal to 1"),
        (body() | {"max_tokens": "many"}, "max_tokens: Input should be a valid integer"),
        (body() | {"messages": []}, "messages: at least one message is required"),
        (body() | {"messages": ["hi"]}, "messages: Input should be a valid list"),
        (body(tools={}), "tools: Input should be a valid list"),
        (
            body({"role": "user", "content": None}),
            "messages.0.content: Input should be a valid list",
        ),
        (body({"role": "user"}), "messages.0.content: Input should be a valid list"),
        (body({"role": "tool", "content": "x"}), "messages.0.role: Input should be 'user' or"),
        (body(assistant(text("hi"))), 'messages: first message must use the "user" role'),
        (body(user({"type": "text"})), "messages.0.content.0.text.text: Field required"),
        (
            body(user(text("go")), assistant(use("a", input="{}"))),
            "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
        ),
        (
            body(*CALLS_ANSWERED[:2], user(result("a"))),
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: "
            "b. Each `tool_use` block must have a corresponding `tool_result` block in the next "
            "message.",
        ),
        (body(*CALLS_ANSWERED[:2]), "messages.1: `tool_use` ids were found without `tool_result`"),
        (body(*LATE_RESULT), "messages.1: `tool_use` ids were found without `tool_result` blocks"),
        (
            body(user(text("go"), result("a"))),
            "messages.0.content.1: unexpected `tool_use_id` found in `tool_result` blocks: a. "
            "Each `tool_result` block must have a corresponding `tool_use` block in the previous "
            "message.",
        ),
        (
            body(*CALLS_ANSWERED, assistant(use("a")), user(result("a"))),
            "messages.3.content.0: `tool_use` ids must be unique",
        ),
        (
            body(*CALLS_ANSWERED[:2], user(result("a"), result("b"), result("a"))),
            "each tool_use must have a single result. Found multiple `tool_result` blocks with "
            "id: a",
        ),
        (
            body(user(text("go")), assistant(use("a", caller=PTC)), user(result("a"))),
            "container_id is required when there are pending tool uses generated by "
            "code execution with tools.",
        ),
        (
            body(
                user(text("go")),
                assistant(use("a", caller=PTC)),
                user(result("a"), text("hm")),
                container="c",
            ),
            "messages.2: only `tool_result` blocks may answer",
        ),
        (
            body(*SERVER_AND_CLIENT, user(result("a"), text("hm"))),
            "`web_search` tool use with id `srv1` was found without a corresponding "
            "`web_search_tool_result` block",
        ),
        (
            body(user(text("go")), assistant(SERVER_CALL, SERVER_CALL)),
            "messages.1.content.1: `server_tool_use` ids must be unique",
        ),
        (
            body(user(text("go")), assistant(SERVER_RESULT)),
            "messages.1.content.0: unexpected `tool_use_id` found in `web_search_tool_result` "
            "blocks: srv1.",
        ),
        (
            body(user(use("a"))),
            "messages.0.content.0: `tool_use` blocks can only be in `assistant` messages",
        ),
        (
            body(user(text("go")), assistant(IMAGE)),
            "messages.1.content.0: `image` blocks can only be in `user` messages",
        ),
        (
            body(user(text("go")), assistant(use("a b")), user(result("a b"))),
            "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        ),
        (
            body(*CALLS_ANSWERED[:2], user(result("a", [use("c")]), result("b"))),
            "messages.2.content.0.tool_result.content: Input tag 'tool_use' found using 'type'",
        ),
        (
            body(*CALLS_ANSWERED[:2], user(result("a", [IMAGE], is_error=True), result("b"))),
            'messages.2.content.0.tool_result: all content must be type "text" if `is_error` is',
        ),
        (
            body(*CALLS_ANSWERED[:2], user(result("a", is_error="no"), result("b"))),
            "messages.2.content.0.tool_result.is_error: Input should be a valid boolean",
        ),
        (
            body(
                user(text("go")),
                assistant(use("a", caller=PTC)),
                user(result("a", [IMAGE])),
                container="c",
            ),
            "messages.2.content.0: results of tool uses generated by code execution with tools",
        ),
        (
            body(user(text("go")), assistant(text("so")), model=STRICT),
            "This model does not support assistant message prefill. The conversation must end "
            "with a user message.",
        ),
        (
            body(user(text("go")), assistant({"type": "redacted_thinking", "data": "x"})),
            "messages.1: The final block in an assistant message cannot be `thinking`.",
        ),
        (body(user(text("\ud83d"))), "The request body is not valid JSON: no low surrogate in str"),
        (body(model=None), "model: Input should be a valid string"),
        (body(user(text(""))), "messages: text content blocks must be non-empty"),
        (body(user(text(" \n"))), "messages: text content blocks must contain non-whitespace text"),
        (body(system=[text("")]), "system: text content blocks must be non-empty"),
        (
            body(user(text("go")), assistant(use("a")), user(result("a", [text("")]))),
            "messages: text content blocks must be non-empty",
        ),
        (
            body(user(), assistant(text("x")), user(text("y"))),
            "messages.0: all messages must have non-empty content except for the optional final "
            "assistant message",
        ),
        (
            body(user(text("hi")), assistant(text("so "))),
            "messages: final assistant content cannot end with trailing whitespace",
        ),
        (
            body(user(*[text("x", **ANCHOR)] * 4), **ANCHOR),
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
        (
            body(user(text("x", **ANCHOR), text("y", **HOUR))),
            "messages.0.content.1.cache_control.ttl: a ttl='1h' cache_control block must not come",
        ),
        (
            body(user(text("x", cache_control={"type": "ephemeral", "ttl": "2h"}))),
            "messages.0.content.0.cache_control.ttl: Input should be '5m' or '1h'",
        ),
        (body(tools=[{"name": "x"}]), "tools.0.custom.input_schema: Field required"),
        (body(tools=[tool("a"), tool("a")]), "tools: Tool names must be unique."),
        (
            body(tools=[tool("a.b")]),
            "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
        ),
        (
            body(tools=[tool("a" * 129)]),
            "tools.0.custom.name: String should have at most 128 characters",
        ),
        (
            body(user(text("go")), assistant({"type": "thinking", "thinking": "x"})),
            "messages.1.content.0.thinking.signature: Field required",
        ),
    ],
)
def test_a_broken_rule_is_a_400_in_the_words_of_the_api(request_body: Any, wording: str) -> None:
    error = refusal(request_body)
    assert error is not None
    assert error.status == 400
    assert wording in error.message


def test_a_call_without_a_key_is_not_authenticated() -> None:
    error = refusal(body(), **{"anthropic-version": "2023-06-01"})
    assert error is not None
    assert error.payload("req_1") == {
        "type": "error",
        "error": {"type": "authentication_error", "message": "x-api-key header is required"},
        "request_id": "req_1",
    }


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
def test_a_key_is_taken_from_either_header(header: str) -> None:
    assert refusal(body(), **{header: "k", "anthropic-version": "2023-06-01"}) is None


def test_the_version_header_is_required() -> None:
    error = refusal(body(), **{"x-api-key": "k"})
    assert error == ApiError(400, "anthropic-version: header is required")


def test_an_unknown_model_is_not_found_only_where_models_are_listed() -> None:
    error = check_request(body(), HEADERS, ["another"])
    assert error == ApiError(404, "model: m")
    assert error.payload("r")["error"]["type"] == "not_found_error"
    assert check_request(body(), HEADERS, ["m"]) is None


def conversation_with_thought(**changes: Any) -> dict[str, Any]:
    first = body(user(text("go")), system="s")
    seal = signature(segments(first)[-1].digest, "hm")
    thought = {"type": "thinking", "thinking": "hm", "signature": seal} | changes
    return body(user(text("go")), assistant(thought, text("so")), user(text("ok")), system="s")


def test_a_thought_that_comes_back_unchanged_in_its_place_is_accepted() -> None:
    moved_anchor = conversation_with_thought()
    moved_anchor["messages"][0]["content"][0]["cache_control"] = {"type": "ephemeral"}
    assert refusal(conversation_with_thought()) is None
    assert refusal(moved_anchor) is None


def test_a_thought_is_still_in_its_place_when_two_answers_have_become_one() -> None:
    paused = body(user(text("go")), assistant(SERVER_CALL))
    seal = signature(segments(paused)[-1].digest, "hm")
    thought = {"type": "thinking", "thinking": "hm", "signature": seal}
    merged = assistant(SERVER_CALL, thought, SERVER_RESULT, text("so"))
    assert refusal(body(user(text("go")), merged, user(text("ok")))) is None


def test_a_changed_thought_is_refused() -> None:
    error = refusal(conversation_with_thought(thinking="hmm"))
    assert error is not None
    assert "blocks in the latest assistant message cannot be modified" in error.message


def test_a_thought_after_a_changed_prefix_is_refused() -> None:
    error = refusal(conversation_with_thought() | {"system": "another"})
    assert error is not None
    assert error.message.startswith(
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a "
        "different conversation."
    )


def test_a_thought_that_has_no_seal_is_refused() -> None:
    error = refusal(conversation_with_thought(signature=""))
    assert error is not None
    assert "Invalid `signature` in `thinking` block" in error.message


def test_a_thought_is_refused_in_any_place_but_its_own() -> None:
    later = conversation_with_thought()
    thought = later["messages"][1]["content"].pop(0)
    later["messages"].append(assistant(thought, text("so")))
    error = refusal(later)
    assert error is not None
    assert error.message.startswith("messages.3.content.0: Invalid `signature`")


def test_a_thought_of_another_model_is_no_part_of_the_conversation() -> None:
    told = conversation_with_thought()
    other = told | {"model": "another"}
    assert refusal(other) is None
    bare = body(user(text("go")), assistant(text("so")), user(text("ok")), system="s")
    assert segments(other) == segments(bare | {"model": "another"})
    assert segments(other) != segments(bare)
