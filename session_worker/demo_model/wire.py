"""Turns a `Reply` into the events of the Messages API, and events into bytes or one message.

Used by the server and its tests. Pure and deterministic: the same reply gives the same events.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from session_worker.demo_model.conversation import signature
from session_worker.demo_model.reply import Json, Reply, Streamed

DELTA_CHARS = 16
"""Text of one delta: about four tokens, so that even short answers arrive in pieces."""
CHARS_PER_TOKEN = 4

DELTA_FIELDS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
"""Where each delta type carries what is to be appended."""


def identified(reply: Reply, digest: str) -> Reply:
    """The reply with ids and signatures, derived from the digest of the request it answers."""
    content: list[Json | Streamed] = []
    for index, block in enumerate(reply.content):
        call_id = made_id("toolu", f"{digest}.{index}")
        if isinstance(block, Streamed):
            content.append(replace(block, start=_with_id(block.start, call_id)))
        elif block["type"] == "thinking":
            seal = signature(digest, block["thinking"])
            content.append({**block, "signature": block.get("signature", seal)})
        else:
            content.append(_with_id(block, call_id))
    return replace(reply, content=content)


def _with_id(block: Json, call_id: str) -> Json:
    return {"type": "tool_use", "id": call_id, **block} if block["type"] == "tool_use" else block


def made_id(prefix: str, seed: str) -> str:
    """An id in the API's shape that depends on nothing but the seed."""
    return f"{prefix}_{hashlib.sha256(seed.encode()).hexdigest()[:24]}"


def stream_events(reply: Reply, message_id: str, model: str, usage: Json) -> list[Json]:
    """The whole stream, `message_start` to `message_stop`, as the API sends it."""
    if reply.events:
        return list(reply.events)
    streamed = [b if isinstance(b, Streamed) else split(b) for b in reply.content]
    usage = {**usage, "output_tokens": output_tokens(streamed), **reply.usage}
    message: Json = {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 1},
        **reply.start,
    }
    events: list[Json] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    for index, block in enumerate(streamed, start=len(message["content"])):
        events += block_events(index, block)
    calls = any(block.start["type"] == "tool_use" for block in streamed)
    stop_reason = reply.stop_reason or ("tool_use" if calls else "end_turn")
    for left, delta in zip(range(len(reply.deltas))[::-1], reply.deltas, strict=True):
        fields = {"stop_reason": None if left else stop_reason, "stop_sequence": None, **delta}
        events.append({"type": "message_delta", "delta": fields, "usage": usage})
    return [*events, {"type": "message_stop"}]


def block_events(index: int, block: Streamed) -> Iterator[Json]:
    """Start, deltas and stop of one block."""
    yield {"type": "content_block_start", "index": index, "content_block": block.start}
    for delta in block.deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def split(block: Json) -> Streamed:
    """A block as the API streams it: text and JSON in pieces, results and unknown types whole."""
    match block["type"]:
        case "text":
            return Streamed({**block, "text": ""}, _deltas("text_delta", block["text"]))
        case "thinking":
            thought = _deltas("thinking_delta", block["thinking"])
            seal: Json = {"type": "signature_delta", "signature": block["signature"]}
            return Streamed({**block, "thinking": "", "signature": ""}, [*thought, seal])
        case "tool_use" | "server_tool_use":
            raw = json.dumps(block["input"], ensure_ascii=False) if block["input"] else ""
            empty: Json = {"type": "input_json_delta", "partial_json": ""}
            return Streamed({**block, "input": {}}, [empty, *_deltas("input_json_delta", raw)])
        case _:
            return Streamed(block)


def _deltas(kind: str, words: str) -> list[Json]:
    pieces = (words[at : at + DELTA_CHARS] for at in range(0, len(words), DELTA_CHARS))
    return [{"type": kind, DELTA_FIELDS[kind]: piece} for piece in pieces]


def delta_chars(delta: Json) -> int:
    """How much text a delta carries; none if its type is unknown."""
    return len(delta.get(DELTA_FIELDS.get(delta["type"], ""), ""))


def output_tokens(streamed: Sequence[Streamed]) -> int:
    """Tokens of an answer, by its text."""
    chars = sum(delta_chars(delta) for block in streamed for delta in block.deltas)
    return max(1, chars // CHARS_PER_TOKEN)


def encode(event: Json) -> bytes:
    """One server-sent event."""
    data = json.dumps(event, ensure_ascii=False)
    return f"event: {event['type']}\ndata: {data}\n\n".encode("utf-8", "replace")


def message_of(events: Sequence[Json]) -> Json:
    """What `stream: false` returns for the same reply."""
    message: Json = {}
    open_blocks: dict[int, Json] = {}
    for event in events:
        match event["type"]:
            case "message_start":
                message = {**event["message"], "content": [*event["message"]["content"]]}
            case "content_block_start":
                open_blocks[event["index"]] = block = dict(event["content_block"])
                message["content"].append(block)
            case "content_block_delta":
                _append(open_blocks[event["index"]], event["delta"])
            case "content_block_stop":
                _close(open_blocks[event["index"]])
            case "message_delta":
                message |= {**event["delta"], "usage": event["usage"]}
            case _:
                pass
    return message


def _append(block: Json, delta: Json) -> None:
    field = DELTA_FIELDS.get(delta["type"])
    if field:
        block[field] = block.get(field, "") + delta[field]


def _close(block: Json) -> None:
    raw: Any = block.pop("partial_json", "")
    if raw:
        try:
            block["input"] = json.loads(raw)
        except json.JSONDecodeError:
            block["input"] = {"INVALID_JSON": raw}
