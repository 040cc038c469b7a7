"""What holds for every stream: true ones, cut ones, damaged ones and plain garbage."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session_worker.assembler import INVALID_JSON, Assembler
from session_worker.model_error import ModelError
from session_worker.turn import AgentTurn, next_step

Json = dict[str, Any]

FINITE = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers(-(10**40), 10**40) | FINITE | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=3)
INPUTS = OBJECTS | st.builds(lambda raw: {INVALID_JSON: raw}, st.just('{"a": "b'))
STOP_REASONS = [
    None,
    "end_turn",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "max_tokens",
    "model_context_window_exceeded",
    "refusal",
    "compaction",
    "something_new",
]


def blocks_of(kind: str, **fields: Any) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({"type": st.just(kind), **fields})


CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
BLOCKS = st.one_of(
    blocks_of("text", text=st.text()),
    blocks_of("text", text=st.text(), citations=st.lists(OBJECTS, min_size=1, max_size=3)),
    blocks_of("thinking", thinking=st.text(), signature=st.text()),
    blocks_of("redacted_thinking", data=st.text()),
    blocks_of("compaction", content=st.none() | st.text(), encrypted_content=st.text()),
    blocks_of("web_search_tool_result", tool_use_id=st.text(), content=VALUES),
    blocks_of("brand_new", payload=VALUES),
    *(blocks_of(kind, name=st.text(), input=INPUTS, caller=OBJECTS) for kind in CALLS),
)
USAGES = st.dictionaries(
    st.sampled_from(["input_tokens", "output_tokens", "cache_read_input_tokens"]),
    st.integers(0, 10**9),
)


@st.composite
def messages(draw: st.DrawFn) -> Json:
    content = draw(st.lists(BLOCKS, max_size=5))
    for number, block in enumerate(content):
        if block["type"] in CALLS:
            block["id"] = f"id_{number}"
    return {
        "id": draw(st.text()),
        "model": draw(st.text()),
        "content": content,
        "stop_reason": draw(st.sampled_from(STOP_REASONS)),
        "container": draw(st.none() | st.just({"id": "c", "expires_at": "soon"})),
        "usage": draw(USAGES),
    }


def in_parts(draw: st.DrawFn, text: str) -> list[str]:
    """Cut anywhere, also inside a character above U+FFFF, as a server that counts in UTF-16 may."""
    raw = text.encode("utf-16-le")
    cuts = draw(st.lists(st.integers(0, len(raw) // 2), max_size=5))
    edges = [0, *sorted(2 * cut for cut in cuts), len(raw)]
    parts = [raw[a:b] for a, b in itertools.pairwise(edges)]
    return [part.decode("utf-16-le", "surrogatepass") for part in parts]


def split(draw: st.DrawFn, block: Json) -> tuple[Json, list[Json]]:
    """A block as it starts, and its deltas."""
    match block:
        case {"type": "text", "text": text}:
            deltas = [{"type": "text_delta", "text": part} for part in in_parts(draw, text)]
            for citation in block.get("citations", []):
                deltas.append({"type": "citations_delta", "citation": citation})
            return {"type": "text", "text": ""}, deltas
        case {"type": "thinking", "thinking": text, "signature": signature}:
            parts = in_parts(draw, text) if text else []
            deltas = [{"type": "thinking_delta", "thinking": part} for part in parts]
            deltas.append({"type": "signature_delta", "signature": signature})
            return {**block, "thinking": "", "signature": ""}, deltas
        case {"type": "compaction"}:
            return {"type": "compaction", "content": None}, [{**block, "type": "compaction_delta"}]
        case {"input": given}:
            if not given or draw(st.booleans()):  # it stands ready in the start
                return block, json_deltas(draw(st.sampled_from([[], [""]])))
            ascii_only, indent = draw(st.booleans()), draw(st.none() | st.just(1))
            raw = given.get(INVALID_JSON) or json.dumps(
                given, ensure_ascii=ascii_only, indent=indent
            )
            return {**block, "input": {}}, json_deltas(in_parts(draw, raw))
        case _:
            return block, []


def json_deltas(parts: list[str]) -> list[Json]:
    return [{"type": "input_json_delta", "partial_json": part} for part in parts]


def noise(draw: st.DrawFn) -> Iterator[Json]:
    kinds = draw(st.lists(st.sampled_from(["ping", "future_event"]), max_size=1))
    yield from ({"type": kind} for kind in kinds)


@st.composite
def streams(draw: st.DrawFn, given_message: Json | None = None) -> list[Json]:
    """A stream that the API might send for a message."""
    message = given_message or draw(messages())
    content, usage, late = message["content"], message["usage"], ("stop_reason", "container")
    ready = draw(st.integers(0, len(content)))
    events = list(noise(draw))
    start = {**message, **dict.fromkeys(late), "content": content[:ready], "usage": {}}
    events.append({"type": "message_start", "message": start})
    base = draw(st.sampled_from([0, ready]))
    for index, block in enumerate(content[ready:], start=base):
        first, deltas = split(draw, block)
        events.append({"type": "content_block_start", "index": index, "content_block": first})
        for delta in deltas:
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
            events += noise(draw)
        events.append({"type": "content_block_stop", "index": index})
    for key in draw(st.permutations(late)):
        counted = dict.fromkeys(usage, 0)
        events.append({"type": "message_delta", "delta": {key: message[key]}, "usage": counted})
    events.append({"type": "message_delta", "delta": {}, "usage": usage})
    return [*events, {"type": "message_stop"}]


def assemble(events: Any) -> Json:
    assembler = Assembler()
    for event in events:
        assembler.feed(event)
    return assembler.message()


@settings(deadline=None)
@given(st.data())
def test_a_stream_assembles_to_its_message_wherever_its_deltas_are_cut(data: Any) -> None:
    message = data.draw(messages())
    assert assemble(data.draw(streams(message))) == message


@settings(deadline=None)
@given(streams(), st.data())
def test_a_stream_cut_before_its_end_is_an_error_and_never_half_a_message(
    events: list[Json], data: Any
) -> None:
    length = data.draw(st.integers(0, len(events) - 1))
    with pytest.raises(ModelError) as caught:
        assemble(events[:length])
    assert caught.value.kind == "stream_truncated"


WILD_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=3)
FIELDS = """type index delta content_block message content text thinking signature partial_json
input id name usage container stop_reason citation citations error output_tokens cache_creation"""
EVENTS = """message_start message_delta message_stop content_block_start content_block_delta
content_block_stop ping error"""
TYPES = """text thinking tool_use compaction fallback text_delta input_json_delta thinking_delta
signature_delta citations_delta compaction_delta"""
NAMES = st.sampled_from(FIELDS.split())
EVENT_KINDS = st.sampled_from(EVENTS.split())
KINDS = st.sampled_from(TYPES.split())
GARBAGE: st.SearchStrategy[Any] = st.recursive(
    KINDS | WILD_TEXT | SCALARS | st.floats() | st.integers(0, 2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | WILD_TEXT, inner),
    max_leaves=12,
)
GARBAGE_EVENTS = st.fixed_dictionaries(
    {"type": EVENT_KINDS},
    optional={
        "index": st.integers(0, 1) | GARBAGE,
        "delta": st.fixed_dictionaries({"type": KINDS}, optional={"text": GARBAGE}) | GARBAGE,
        "content_block": st.fixed_dictionaries({"type": KINDS | WILD_TEXT}) | GARBAGE,
        "message": st.dictionaries(NAMES, GARBAGE) | GARBAGE,
        "usage": GARBAGE,
        "error": GARBAGE,
    },
)


def endure(events: list[Any]) -> None:
    """Nothing but `ModelError`, and a message that is none is as good as one from the API."""
    assembler = Assembler()
    for event in events:
        try:
            assembler.feed(event)
        except ModelError:
            with pytest.raises(ModelError):
                assembler.message()
    assert isinstance(assembler.usage, dict)
    try:
        message = assembler.message()
    except ModelError:
        return
    json.dumps(message["content"], ensure_ascii=False, allow_nan=False).encode()
    next_step(AgentTurn.from_response(message))


@settings(deadline=None)
@given(st.lists(GARBAGE_EVENTS | GARBAGE, max_size=8))
def test_garbage_raises_nothing_but_model_errors(events: list[Any]) -> None:
    endure(events)
    endure([{"type": "message_start", "message": {}}, *events, {"type": "message_stop"}])


@settings(deadline=None)
@given(streams(), st.data())
def test_a_damaged_stream_raises_nothing_but_model_errors(events: list[Any], data: Any) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        at, other = (data.draw(st.integers(0, len(events) - 1)) for _ in range(2))
        match data.draw(st.sampled_from(["drop", "repeat", "swap", "damage"])):
            case "drop":
                events = [*events[:at], *events[at + 1 :], {"type": "ping"}]
            case "repeat":
                events = [*events[:at], events[other], *events[at:]]
            case "swap":
                events[at], events[other] = events[other], events[at]
            case _:
                events[at] = damaged(data, events[at])
    endure(events)


def damaged(data: Any, value: Any) -> Any:
    """`value` with garbage somewhere in it."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(value)))
        return {**value, key: damaged(data, value[key])}
    return data.draw(GARBAGE)
