"""One streamed response, whatever the stream did."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_worker.assembler import INVALID_JSON, Assembler
from session_worker.demo_model import Reply, text, thinking, tool_use
from session_worker.demo_model.wire import stream_events
from session_worker.model_error import ModelError

START = {"type": "message_start", "message": {"id": "msg_1", "content": [], "usage": {}}}
STOP = {"type": "message_stop"}


def assemble(*events: dict[str, Any]) -> dict[str, Any]:
    assembler = Assembler()
    for event in events:
        assembler.feed(event)
    return assembler.message()


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": d} for d in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def json_delta(text: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": text}


CALL = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}


def test_text_and_tool_input_are_joined_at_the_end_of_their_blocks() -> None:
    message = assemble(
        START,
        *block(
            0, {"type": "text", "text": ""}, *({"type": "text_delta", "text": t} for t in "abc")
        ),
        *block(1, CALL, json_delta('{"command": '), json_delta('"ls"}')),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 9},
        },
        STOP,
    )
    assert message["content"] == [
        {"type": "text", "text": "abc"},
        {**CALL, "input": {"command": "ls"}},
    ]
    assert (message["stop_reason"], message["usage"]) == ("tool_use", {"output_tokens": 9})


def test_input_that_stood_ready_in_the_block_start_is_kept() -> None:
    ready = {**CALL, "input": {"command": "ls"}}
    assert assemble(START, *block(0, ready), STOP)["content"] == [ready]


def test_no_input_at_all_is_an_empty_object() -> None:
    assert assemble(START, *block(0, CALL, json_delta("")), STOP)["content"] == [CALL]


@pytest.mark.parametrize("raw", ['{"command": "l', "[1]", '"x"', '{"a":1}{"b":2}', "{'a': 1}"])
def test_what_is_no_json_object_is_kept_as_invalid(raw: str) -> None:
    (call,) = assemble(START, *block(0, CALL, json_delta(raw)), STOP)["content"]
    assert call["input"] == {INVALID_JSON: raw}


def test_a_message_start_may_bring_content_and_its_stop_reason() -> None:
    filled = {"id": "m", "content": [text("before")], "stop_reason": "end_turn", "usage": {}}
    message = assemble({"type": "message_start", "message": filled}, *block(0, text("after")), STOP)
    assert message["content"] == [text("before"), text("after")]
    assert message["stop_reason"] == "end_turn"


def test_several_message_deltas_overwrite_what_they_name_and_keep_the_rest() -> None:
    message = assemble(
        START,
        {
            "type": "message_delta",
            "delta": {"container": {"id": "c1"}},
            "usage": {"input_tokens": 5},
        },
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "container": None},
            "usage": {"input_tokens": None, "output_tokens": 7},
        },
        STOP,
    )
    assert message["container"] == {"id": "c1"}
    assert message["usage"] == {"input_tokens": 5, "output_tokens": 7}


def test_unknown_blocks_and_events_are_kept_or_passed_over() -> None:
    novel = {"type": "brand_new", "payload": {"deep": [1]}}
    message = assemble(
        START,
        {"type": "ping"},
        {"type": "future_event", "x": 1},
        *block(0, novel, {"type": "future_delta", "y": 2}),
        STOP,
    )
    assert message["content"] == [novel]


def test_thinking_keeps_its_signature() -> None:
    deltas = (
        {"type": "thinking_delta", "thinking": "h"},
        {"type": "thinking_delta", "thinking": "m"},
        {"type": "signature_delta", "signature": "sig"},
    )
    start = {"type": "thinking", "thinking": "", "signature": ""}
    (kept,) = assemble(START, *block(0, start, *deltas), STOP)["content"]
    assert kept == {"type": "thinking", "thinking": "hm", "signature": "sig"}


def test_an_error_inside_the_stream_ends_it_with_its_type() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(ModelError) as failure:
        assemble(START, error)
    assert failure.value.kind == "overloaded_error"


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_start"},
        {"type": "content_block_start", "index": 0, "content_block": 7},
        {"type": "message_start", "message": None},
        {"type": "message_delta", "delta": "x"},
        ["no", "event"],
    ],
)
def test_an_event_that_breaks_the_protocol_is_an_error_of_the_model(event: Any) -> None:
    with pytest.raises(ModelError) as failure:
        assemble(START, event)
    assert failure.value.kind == "protocol_error"


@pytest.mark.parametrize("events", [[], [START], [STOP], [START, *block(0, text("x"))]])
def test_a_stream_without_its_end_is_truncated(events: list[dict[str, Any]]) -> None:
    with pytest.raises(ModelError) as failure:
        assemble(*events)
    assert failure.value.kind == "stream_truncated"


@given(st.data())
def test_every_prefix_of_a_true_stream_is_truncated_and_the_whole_is_not(data: Any) -> None:
    reply = Reply(
        [
            {**thinking("why"), "signature": "s"},
            text("some words"),
            tool_use("bash", {"command": "ls"}),
        ]
    )
    events = list(stream_events(reply, "msg_1", "demo-scripted", {}))
    length = data.draw(st.integers(0, len(events)))
    if length == len(events):
        assert [b["type"] for b in assemble(*events)["content"]] == ["thinking", "text", "tool_use"]
    else:
        with pytest.raises(ModelError):
            assemble(*events[:length])
