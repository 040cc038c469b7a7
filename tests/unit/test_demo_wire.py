"""How the demo model's replies become events, bytes, chunks and token counts."""

from __future__ import annotations

from typing import Any

import pytest

from session_worker.demo_model.conversation import segments
from session_worker.demo_model.reply import (
    Fault,
    FaultKind,
    Json,
    Reply,
    Streamed,
    text,
    thinking,
    tool_use,
)
from session_worker.demo_model.stream import OVERLOADED_EVENT, chunks
from session_worker.demo_model.usage import PromptCache, charge, input_tokens
from session_worker.demo_model.wire import encode, identified, message_of, stream_events

USAGE = {"input_tokens": 7}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "echo 你好"}}


def events_of(reply: Reply) -> list[Json]:
    return stream_events(identified(reply, "digest"), "msg_1", "demo-scripted", USAGE)


def kinds(events: list[Json]) -> list[str]:
    return [event["type"] for event in events]


def test_a_reply_is_streamed_as_the_api_does() -> None:
    said = Reply([text("One sentence in pieces."), CALL])
    usage = {"input_tokens": 7, "output_tokens": 11}
    assert events_of(said) == [
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "demo-scripted",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 7, "output_tokens": 1},
            },
        },
        {"type": "ping"},
        start(0, {"type": "text", "text": ""}),
        delta(0, {"type": "text_delta", "text": "One sentence in "}),
        delta(0, {"type": "text_delta", "text": "pieces."}),
        stop(0),
        start(1, {**CALL, "input": {}}),
        delta(1, {"type": "input_json_delta", "partial_json": ""}),
        delta(1, {"type": "input_json_delta", "partial_json": '{"command": "ech'}),
        delta(1, {"type": "input_json_delta", "partial_json": 'o 你好"}'}),
        stop(1),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": usage,
        },
        {"type": "message_stop"},
    ]


def start(index: int, block: Json) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, piece: Json) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": piece}


def stop(index: int) -> Json:
    return {"type": "content_block_stop", "index": index}


def test_thinking_ends_with_its_signature_and_may_be_nothing_else() -> None:
    events = events_of(Reply([thinking("")]))
    assert kinds(events)[2:5] == [
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
    ]
    assert events[3]["delta"]["type"] == "signature_delta"
    assert events[2]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}


def test_results_of_server_tools_and_unknown_blocks_are_whole_in_their_start() -> None:
    found: Json = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    unknown: Json = {"type": "brand_new", "anything": [1, {"x": None}]}
    events = events_of(Reply([found, unknown]))
    assert events[2:6] == [start(0, found), stop(0), start(1, unknown), stop(1)]


def test_a_streamed_block_travels_exactly_as_given() -> None:
    ready = Streamed(CALL)
    odd = Streamed({"type": "brand_new"}, [{"type": "new_delta", "x": 1}])
    events = events_of(Reply([ready, odd]))
    assert events[2:7] == [
        start(0, CALL),
        stop(0),
        start(1, {"type": "brand_new"}),
        delta(1, {"type": "new_delta", "x": 1}),
        stop(1),
    ]
    assert message_of(events)["content"] == [CALL, {"type": "brand_new"}]


def test_a_pre_filled_start_and_a_late_container_are_possible() -> None:
    box = {"id": "container_1", "expires_at": "2026-12-01T00:00:00Z"}
    events = events_of(
        Reply(
            [text("x")],
            stop_reason="pause_turn",
            start={"content": [CALL], "stop_reason": "tool_use"},
            deltas=[{"container": box}, {}],
        )
    )
    message: Json = events[0]["message"]
    assert (message["content"], message["stop_reason"]) == ([CALL], "tool_use")
    assert events[2]["index"] == 1
    assert [event["delta"] for event in events if event["type"] == "message_delta"] == [
        {"stop_reason": None, "stop_sequence": None, "container": box},
        {"stop_reason": "pause_turn", "stop_sequence": None},
    ]


def test_raw_events_replace_everything() -> None:
    raw: list[Json] = [{"type": "message_start"}, {"type": "never_seen_before"}]
    assert events_of(Reply([text("ignored")], events=raw)) == raw


def test_ids_and_signatures_depend_on_the_request_alone() -> None:
    said = Reply([thinking("hm"), tool_use("a", {}), tool_use("a", {})])
    once, again, other = (identified(said, digest).content for digest in ("x", "x", "y"))
    assert once == again
    blocks: list[Any] = [*once, *other]
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert len(set(ids)) == 4
    assert blocks[0]["signature"] != blocks[3]["signature"]


def test_without_streaming_the_message_is_the_same() -> None:
    broken = Streamed({**CALL, "input": {}}, [{"type": "input_json_delta", "partial_json": '{"a'}])
    content = [text("a sentence of some length"), CALL, tool_use("ls", {})]
    message = message_of(events_of(Reply([*content, broken], usage={"input_tokens": 1})))
    assert message["content"][:2] == content[:2]
    assert message["content"][2]["input"] == {}
    assert message["content"][3]["input"] == {"INVALID_JSON": '{"a'}
    assert message["stop_reason"] == "tool_use"
    assert message["usage"]["input_tokens"] == 1


def test_an_event_is_encoded_as_one_server_sent_event_in_utf8() -> None:
    assert encode({"type": "ping", "x": "你\n\ud800"}) == (
        'event: ping\ndata: {"type": "ping", "x": "你\\n?"}\n\n'.encode()
    )


def test_a_body_can_be_cut_inside_a_character() -> None:
    events = events_of(Reply([text("你好")]))
    whole = b"".join(map(encode, events))
    pieces = [piece for _, piece in chunks(Reply(chunk_bytes=1), events)]
    assert b"".join(pieces) == whole
    assert {len(piece) for piece in pieces} == {1}


def test_a_slow_reply_pauses_by_the_tokens_of_each_delta() -> None:
    events = events_of(Reply([text("a" * 24)]))
    pauses = [pause for pause, _ in chunks(Reply(tps=20), events)]
    assert pauses == [0, 0, 0, 0.2, 0.1, 0, 0, 0]


@pytest.mark.parametrize(
    ("kind", "tail"),
    [
        ("cut", b""),
        ("reset", b""),
        ("stall", b""),
        ("eof", b""),
        ("half_event", b"event: message_stop\ndata: "),
        ("overloaded", encode(OVERLOADED_EVENT)),
    ],
)
def test_a_fault_ends_the_body_after_its_events(kind: FaultKind, tail: bytes) -> None:
    events: list[Json] = [{"type": "ping"}, {"type": "message_stop"}]
    for fault in (Fault(kind, after=1), Fault(kind)):
        body = b"".join(piece for _, piece in chunks(Reply(fault=fault), events))
        assert body == encode({"type": "ping"}) + tail


def request(*words: str, ttl: str | None = None) -> Json:
    """A prompt of one block a word, the last of them an anchor if a ttl is given."""
    content = [text(word * 100) for word in words]
    if ttl:
        content[-1]["cache_control"] = {"type": "ephemeral", "ttl": ttl}
    return {"messages": [{"role": "user", "content": content}]}


def anchored(*words: str) -> Json:
    return request(*words, ttl="5m")


def spent(body: Json, cache: PromptCache, now: float, automatic: str | None = None) -> list[int]:
    """Fresh, read, written."""
    usage = charge(segments(body), automatic, cache, now)
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    counts = [usage[name] for name in names]
    assert sum(counts) == input_tokens(segments(body))
    return counts


def test_nothing_is_cached_without_an_anchor() -> None:
    cache: PromptCache = {}
    assert spent(request("a"), cache, 0)[1:] == [0, 0]
    assert spent(request("a"), cache, 0)[1:] == [0, 0]


def test_what_was_written_is_read_when_the_conversation_grows() -> None:
    cache: PromptCache = {}
    _, read, written = spent(anchored("a", "b"), cache, 0)
    assert (read, written > 50) == (0, True)
    fresh, read, grown = spent(anchored("a", "b", "c"), cache, 1)
    assert (fresh, read) == (0, written)
    assert grown > 25


def test_a_changed_prefix_is_written_anew() -> None:
    cache: PromptCache = {}
    spent(anchored("a", "b"), cache, 0)
    assert spent(anchored("x", "b"), cache, 1)[1] == 0


def test_an_entry_lives_five_minutes_from_its_last_use() -> None:
    cache: PromptCache = {}
    for now, hit in ((0, False), (299, True), (598, True), (900, False)):
        assert bool(spent(anchored("a"), cache, now)[1]) is hit


def test_an_hour_is_counted_apart_and_lives_longer() -> None:
    cache: PromptCache = {}
    usage = charge(segments(request("a", ttl="1h")), None, cache, 0)
    split = usage["cache_creation"]
    assert split["ephemeral_1h_input_tokens"] == usage["cache_creation_input_tokens"] > 0
    assert split["ephemeral_5m_input_tokens"] == 0
    assert spent(request("a", ttl="1h"), cache, 3599)[1] > 0


def test_an_automatic_anchor_is_the_last_block() -> None:
    cache: PromptCache = {}
    assert spent(request("a"), cache, 0, "5m")[0] == 0
    assert spent(request("a"), cache, 1, "5m")[1] > 0


def test_tokens_are_characters_by_four() -> None:
    short, longer = (input_tokens(segments(request(word))) for word in ("a", "aaaaa"))
    assert longer - short == 100


def test_a_plain_string_counts_as_the_block_it_stands_for() -> None:
    as_string: Json = {"messages": [{"role": "user", "content": "hi"}]}
    as_block: Json = {"messages": [{"role": "user", "content": [text("hi")]}]}
    assert segments(as_string) == segments(as_block)
