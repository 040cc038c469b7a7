"""One streamed response, whatever the stream did."""

from __future__ import annotations

import json
from typing import Any

import pytest

from session_worker.assembler import INVALID_JSON, Assembler
from session_worker.demo_model import text
from session_worker.model_error import ModelError
from sidecar.protocol.bounds import MESSAGE_CHARS, MESSAGE_DEPTH

Event = dict[str, Any]

START: Event = {"type": "message_start", "message": {"id": "msg_1", "content": [], "usage": {}}}
STOP: Event = {"type": "message_stop"}
CALL: Event = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}
THINKING: Event = {"type": "thinking", "thinking": "", "signature": ""}
SURROGATE = "\ud83d"


def fed(*events: Any) -> Assembler:
    assembler = Assembler()
    for event in events:
        assembler.feed(event)
    return assembler


def assemble(*events: Any) -> dict[str, Any]:
    return fed(*events).message()


def failure(*events: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        assemble(*events)
    return caught.value


def content(*events: Any) -> list[dict[str, Any]]:
    return assemble(START, *events, STOP)["content"]


def started(index: Any, start: Any) -> Event:
    return {"type": "content_block_start", "index": index, "content_block": start}


def delta(index: Any, kind: str, **fields: Any) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def ended(index: Any) -> Event:
    return {"type": "content_block_stop", "index": index}


def block(index: int, start: Any, *deltas: Event) -> list[Event]:
    return [started(index, start), *({**d, "index": index} for d in deltas), ended(index)]


def texts(*parts: str) -> list[Event]:
    return [delta(0, "text_delta", text=part) for part in parts]


def jsons(*parts: str) -> list[Event]:
    return [delta(0, "input_json_delta", partial_json=part) for part in parts]


def update(usage: Any = None, **fields: Any) -> Event:
    return {"type": "message_delta", "delta": fields, "usage": usage}


# --- blocks and deltas ---------------------------------------------------------------------


def test_text_and_tool_input_are_joined_at_the_end_of_their_blocks() -> None:
    call = block(1, CALL, *jsons('{"command": ', '"ls"}'))
    assert content(*block(0, text(""), *texts(*"abc")), *call) == [
        text("abc"),
        {**CALL, "input": {"command": "ls"}},
    ]


def test_blocks_that_are_open_together_keep_the_order_of_their_starts() -> None:
    both = [started(0, text("")), started(1, text(""))]
    parts = [delta(i, "text_delta", text=t) for i, t in ((1, "b"), (0, "a"), (1, "B"), (0, "A"))]
    assert content(*both, *parts, ended(1), ended(0)) == [text("aA"), text("bB")]


@pytest.mark.parametrize("parts", [(), ("",), ("", "")])
def test_input_that_stood_ready_in_the_block_start_is_kept(parts: tuple[str, ...]) -> None:
    ready = {**CALL, "input": {"command": "ls"}, "caller": {"type": "direct"}}
    assert content(*block(0, ready, *jsons(*parts))) == [ready]


@pytest.mark.parametrize("given", [{"input": {}}, {"input": None}, {}])
def test_no_input_at_all_is_an_empty_object(given: dict[str, Any]) -> None:
    start = {"type": "tool_use", "id": "toolu_1", "name": "bash", **given}
    assert content(*block(0, start, *jsons(""))) == [CALL]


@pytest.mark.parametrize("kind", ["tool_use", "server_tool_use", "mcp_tool_use"])
def test_the_input_of_every_kind_of_call_is_parsed(kind: str) -> None:
    call = {**CALL, "type": kind}
    assert content(*block(0, call, *jsons('{"a', '":1}'))) == [{**call, "input": {"a": 1}}]


@pytest.mark.parametrize(
    "raw",
    [
        '{"command": "l',
        "[1]",
        '"x"',
        "7",
        "null",
        '{"a":1}{"b":2}',
        "{'a': 1}",
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": ' + "9" * 5000 + "}",
        r'{"a": "\ud83d"}',
        '{"a":' * 200_000,
        '{"a":' * (MESSAGE_DEPTH + 1) + "1" + "}" * (MESSAGE_DEPTH + 1),
        " ",
    ],
)
def test_what_is_no_json_object_is_kept_as_invalid(raw: str) -> None:
    (call,) = content(*block(0, CALL, *jsons(raw)))
    assert call["input"] == {INVALID_JSON: raw}


def test_input_may_be_nested_as_deep_as_the_bound_and_hold_any_number_of_brackets() -> None:
    deep = '{"a":' * MESSAGE_DEPTH + '"[["' + "}" * MESSAGE_DEPTH
    wide = json.dumps({"a": [{}, []] * MESSAGE_DEPTH, "b": "[{" * MESSAGE_DEPTH})
    for raw in (deep, wide):
        assert content(*block(0, CALL, *jsons(raw)))[0]["input"] == json.loads(raw)


def test_of_duplicate_keys_the_last_one_counts() -> None:
    assert content(*block(0, CALL, *jsons('{"a":1,"a":2}')))[0]["input"] == {"a": 2}


def test_a_long_input_in_many_parts_is_one_input() -> None:
    parts = ['{"a": "', *["x" * 10] * 100_000, '"}']
    assert content(*block(0, CALL, *jsons(*parts)))[0]["input"] == {"a": "x" * 1_000_000}


def test_a_block_without_its_end_is_closed_by_the_end_of_the_message() -> None:
    assert content(started(0, text("")), *texts("a")) == [text("a")]
    assert content(started(0, CALL), *jsons('{"a":1}'))[0]["input"] == {"a": 1}
    assert content(started(0, CALL), *jsons('{"a":'))[0]["input"] == {INVALID_JSON: '{"a":'}


def test_an_input_that_never_came_and_has_no_end_is_no_empty_object() -> None:
    assert content(started(0, CALL), *jsons(""))[0]["input"] == {INVALID_JSON: ""}


def test_thinking_keeps_its_signature_also_without_its_words() -> None:
    thoughts = [delta(0, "thinking_delta", thinking=t) for t in "hm"]
    seal = delta(0, "signature_delta", signature="sig")
    assert content(*block(0, THINKING, *thoughts, seal), *block(1, THINKING, seal)) == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "thinking", "thinking": "", "signature": "sig"},
    ]


def test_citations_are_appended_in_order() -> None:
    cited = [delta(0, "citations_delta", citation={"n": n}) for n in (2, 3)]
    start = {**text(""), "citations": [{"n": 1}]}
    assert content(*block(0, start, cited[0], *texts("a"), cited[1])) == [
        {**text("a"), "citations": [{"n": 1}, {"n": 2}, {"n": 3}]}
    ]
    assert start["citations"] == [{"n": 1}]


def test_a_compaction_keeps_what_it_must_be_sent_back_with() -> None:
    start = {"type": "compaction", "content": None, "signature": "s", "tool_changes": []}
    summary = delta(0, "compaction_delta", content="short", encrypted_content="opaque")
    nothing = delta(0, "compaction_delta", content=None, encrypted_content=None)
    assert content(*block(0, start, summary, nothing), *block(1, start, nothing)) == [
        {**start, "content": "short", "encrypted_content": "opaque"},
        {**start, "encrypted_content": None},
    ]


@pytest.mark.parametrize(
    "whole",
    [
        {"type": "redacted_thinking", "data": "opaque"},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "u"}]},
        {"type": "web_fetch_tool_result", "content": {"type": "web_fetch_tool_error"}},
        {"type": "code_execution_tool_result", "content": {"stdout": "", "return_code": 0}},
        {"type": "bash_code_execution_tool_result", "content": {"encrypted_stdout": "x"}},
        {"type": "text_editor_code_execution_tool_result", "content": {}},
        {"type": "tool_search_tool_result", "content": {"tool_references": []}},
        {"type": "container_upload", "file_id": "f"},
        {"type": "mcp_tool_result", "is_error": False, "content": [text("x")]},
        {"type": "mcp_tool_listing", "tools": []},
        {"type": "advisor_tool_result", "content": []},
        {"type": "brand_new", "payload": {"deep": [1, None]}},
    ],
)
def test_blocks_that_come_whole_are_kept_verbatim(whole: dict[str, Any]) -> None:
    assert content(*block(0, whole, delta(0, "future_delta", y=2))) == [whole]


def test_after_a_fallback_the_message_is_that_of_the_model_that_served() -> None:
    fallback = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}
    message = assemble(START, *block(0, fallback), STOP)
    assert (message["content"], message["model"]) == ([fallback], "b")


def test_a_character_that_was_split_between_deltas_is_whole_again() -> None:
    halves = ("\ud83d", "\ude00")
    raw = jsons('{"a": "', *halves, '"}')
    assert content(*block(0, text(""), *texts(*halves)), *block(1, CALL, *raw)) == [
        text("😀"),
        {**CALL, "input": {"a": "😀"}},
    ]


def test_half_a_character_is_replaced_in_text_and_makes_input_invalid() -> None:
    result = {"type": "brand_new", "x": [SURROGATE], SURROGATE: 1}
    raw = jsons('{"a": "', SURROGATE, '"}')
    assert content(
        *block(0, text(""), *texts("a", SURROGATE)), *block(1, CALL, *raw), *block(2, result)
    ) == [
        text("a\ufffd"),
        {**CALL, "input": {INVALID_JSON: '{"a": "\ufffd"}'}},
        {"type": "brand_new", "x": ["\ufffd"], "\ufffd": 1},
    ]


# --- the message ---------------------------------------------------------------------------


@pytest.mark.parametrize("index", [0, 1])
def test_indexes_may_go_on_or_begin_at_0_after_pre_filled_content(index: int) -> None:
    filled = {**START["message"], "content": [CALL], "container": {"id": "c"}}
    begin = {"type": "message_start", "message": filled}
    message = assemble(begin, *block(index, text(""), *texts("after")), STOP)
    assert (message["content"], message["container"]) == ([CALL, text("after")], {"id": "c"})


def test_a_message_start_may_be_the_whole_message() -> None:
    whole = {"id": "m", "content": [text("x")], "stop_reason": "end_turn", "usage": {"x": 1}}
    assert assemble({"type": "message_start", "message": whole}, STOP) == whole


def test_missing_content_is_no_content() -> None:
    begin = {"type": "message_start", "message": {"id": "m", "content": None}}
    assert assemble(begin, STOP) == {"id": "m", "content": [], "usage": {}}


def test_usage_is_cumulative_and_absent_counts_stay() -> None:
    begin = {"type": "message_start", "message": {"usage": {"input_tokens": 5, "tier": None}}}
    assembler = Assembler()
    seen = [assembler.usage]
    for event in (
        begin,
        update({"output_tokens": 1}),
        update(),
        update({"input_tokens": None, "output_tokens": 7, "iterations": [1]}, stop_reason="x"),
    ):
        assembler.feed(event)
        seen.append(assembler.usage)
    last = {"input_tokens": 5, "tier": None, "output_tokens": 7, "iterations": [1]}
    one = {"input_tokens": 5, "tier": None, "output_tokens": 1}
    assert seen == [{}, begin["message"]["usage"], one, one, last]
    assembler.feed(STOP)
    assert assembler.message()["usage"] == last


def test_usage_is_known_of_a_stream_that_broke() -> None:
    assembler = fed(START, update({"output_tokens": 3}))
    with pytest.raises(ModelError):
        assembler.feed({"type": "error", "error": {"type": "api_error", "message": ""}})
    assert assembler.usage == {"output_tokens": 3}


def test_the_newest_value_that_is_not_null_counts() -> None:
    message = assemble(
        START,
        update(stop_reason="end_turn", stop_sequence=None, stop_details={"category": "cyber"}),
        {**update(stop_reason=None, stop_details=None), "context_management": {"edits": []}},
        STOP,
    )
    assert message["stop_reason"] == "end_turn"
    assert message["stop_sequence"] is None
    assert message["stop_details"] == {"category": "cyber"}
    assert message["context_management"] == {"edits": []}


def test_the_newest_container_counts_and_its_expiry_stays_known() -> None:
    first = {"id": "c1", "expires_at": "soon"}
    begin = {"type": "message_start", "message": {"container": dict(first)}}
    for later, expected in (
        ({"id": "c1", "expires_at": "later"}, {"id": "c1", "expires_at": "later"}),
        ({"id": "c2"}, {"id": "c2"}),
        ({"id": "c1"}, first),
        (None, first),
    ):
        event = update(container=later)
        assert assemble(begin, event, update(), STOP)["container"] == expected
        assert event == update(container=later)


def test_unknown_events_are_passed_over_and_nothing_follows_the_end() -> None:
    ping, novel = {"type": "ping"}, {"type": "future_event", "x": 1}
    late = [*block(5, text("late")), {"type": "error", "error": {}}, STOP]
    events = [ping, START, ping, novel, *block(0, text("x")), ended(7), STOP, *late]
    assert assemble(*events)["content"] == [text("x")]


# --- what breaks ---------------------------------------------------------------------------


def test_an_error_inside_the_stream_ends_it_with_its_type() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assembler = fed(START)
    for event in (error, STOP):
        with pytest.raises(ModelError) as caught:
            assembler.feed(event)
        assert (caught.value.kind, caught.value.message) == ("overloaded_error", "Overloaded")
    with pytest.raises(ModelError):
        assembler.message()


def test_an_error_inside_the_stream_keeps_its_code_and_details() -> None:
    details = {"error_code": "compaction_unavailable", "more": 1}
    error = {"type": "overloaded_error", "message": "m", "details": details}
    caught = failure(START, {"type": "error", "error": error})
    assert (caught.kind, caught.code) == ("overloaded_error", "compaction_unavailable")
    assert caught.details == details


@pytest.mark.parametrize("error", [None, "busy", {"type": 7}, {"message": "x"}])
def test_an_error_of_no_known_shape_is_an_error_all_the_same(error: Any) -> None:
    assert failure(START, {"type": "error", "error": error}).kind in ("api_error", "protocol_error")


DEEP: Any = 1
for _ in range(MESSAGE_DEPTH):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "event",
    [
        ["no", "event"],
        {"type": "content_block_start"},
        started(0, 7),
        started([], text("")),
        started(0, {"text": "no type"}),
        started(0, {"type": "text", "text": 7}),
        started(0, {**CALL, "id": None}),
        started(0, {**CALL, "input": "{}"}),
        started(0, {"type": "brand_new", "x": DEEP}),
        started(0, {"type": "brand_new", "x": float("nan")}),
        started(0, {"type": "brand_new", "x": "x" * MESSAGE_CHARS}),
        {"type": "message_start", "message": {}},
        update(container="c"),
        update(container={"expires_at": "soon"}),
        update(stop_reason=["end_turn"]),
        update({"input_tokens": "many"}),
        update({"cache_creation": 7}),
        update([1]),
        {"type": "message_delta", "delta": "x"},
        delta(9, "text_delta", text="to no block"),
        delta(8, "signature_delta", signature="to a block that has ended"),
        {"type": "content_block_delta", "index": 7, "delta": None},
        delta(7, "text_delta", text=["x"]),
        delta(7, "text_delta"),
        delta(7, "text_delta", text="x" * MESSAGE_CHARS),
        delta(7, "input_json_delta", partial_json="{}"),
        delta(7, "citations_delta"),
        started(7, text("again")),
    ],
)
def test_an_event_that_breaks_the_protocol_is_an_error_of_the_model(event: Any) -> None:
    before = [START, *block(8, text("")), started(7, text(""))]
    assert failure(*before, event).kind == "protocol_error"
    assert assemble(*before, STOP)


@pytest.mark.parametrize("event", [started(0, text("")), *texts("x"), update(), STOP])
def test_nothing_may_come_before_the_message_start(event: Event) -> None:
    assert failure(event).kind == "protocol_error"


def test_a_message_start_must_be_an_object_with_proper_blocks() -> None:
    for message in (None, [], {"content": "text"}, {"content": {"a": 1}}, {"content": [None]}):
        assert failure({"type": "message_start", "message": message}).kind == "protocol_error"


def test_two_calls_with_one_id_could_not_be_answered() -> None:
    assert failure(START, *block(0, CALL), *block(1, CALL), STOP).kind == "protocol_error"
