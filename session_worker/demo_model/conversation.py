"""Reads a request body the way the model does: prompt, calls since, results, prefix digests.

Used by scripts, rules and the usage simulation. Never changes what it reads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from session_worker.demo_model.reply import Json

SIGNATURE_PREFIX = "demo."
"""Tells the signatures made here from those of a real model, which nobody else can judge."""

AUTHOR_CHARS = 8
"""Of the digest of a model's name."""

Tools = Mapping[str, Json]
"""Offered tools by name, without those that the API runs itself."""


@dataclass(frozen=True)
class Call:
    """A tool call of the model and what came of it."""

    name: str
    arguments: Json
    result: str
    is_error: bool


@dataclass(frozen=True)
class Conversation:
    """The last prompt, whether it is the first one, and the rounds of calls made for it.

    The prompt is the last text of its message: before it may stand a prompt whose run was
    cancelled.
    """

    prompt: str
    is_first: bool
    rounds: list[list[Call]]
    tools: Tools


@dataclass(frozen=True)
class Segment:
    """A cacheable piece of a request; `digest` covers it and all before it."""

    chars: int
    digest: str
    ttl: str | None


def blocks(content: str | list[Json]) -> list[Json]:
    """The API reads a string as one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content


def result_text(block: Json) -> str:
    """The text of a `tool_result` block."""
    return "\n".join(part.get("text", "") for part in blocks(block.get("content", "")))


def read(body: Json) -> Conversation:
    """What a script needs to know of a request that broke no rule."""
    messages: list[Json] = body["messages"]
    prompts = [
        (index, texts[-1])
        for index, message in enumerate(messages)
        if message["role"] == "user"
        and (texts := [b["text"] for b in blocks(message["content"]) if b["type"] == "text"])
    ]
    at, prompt = prompts[-1] if prompts else (0, "")
    forbidden = body.get("tool_choice", {}).get("type") == "none"
    tools = {tool["name"]: tool for tool in body.get("tools", ()) if "input_schema" in tool}
    return Conversation(
        prompt=prompt,
        is_first=len(prompts) < 2,
        rounds=_rounds(messages[at + 1 :]),
        tools={} if forbidden else tools,
    )


def _rounds(messages: Sequence[Json]) -> list[list[Call]]:
    contents = [blocks(message["content"]) for message in messages]
    results = {
        block["tool_use_id"]: block
        for content in contents
        for block in content
        if block["type"] == "tool_result"
    }
    rounds = [
        [_call(block, results[block["id"]]) for block in content if block["type"] == "tool_use"]
        for content in contents
    ]
    return [calls for calls in rounds if calls]


def _call(use: Json, result: Json) -> Call:
    is_error = bool(result.get("is_error"))
    return Call(use["name"], use["input"], result_text(result), is_error)


def segments(body: Json) -> list[Segment]:
    """The request in the order the API caches it; where the anchors stand changes no digest.

    A digest begins with that of the model: caches and signatures are good for one model only.
    Results for code have no length: the model does not read them.
    """
    author = _author(body)
    from_code = {block.get("id") for _, _, block in pieces(body) if is_from_code(block)}
    running = hashlib.sha256()
    found: list[Segment] = []
    for _, place, block in pieces(body):
        raw = json.dumps([place, _without_anchors(block)], ensure_ascii=False, sort_keys=True)
        running.update(raw.encode("utf-8", "surrogatepass"))
        ttl = block.get("cache_control", {}).get("ttl", "5m") if "cache_control" in block else None
        chars = 0 if block.get("tool_use_id") in from_code else len(raw)
        found.append(Segment(chars, author + running.hexdigest(), ttl))
    return found


def pieces(body: Json) -> Iterator[tuple[str, str, Json]]:
    """The blocks of a request, each after its path and its place: `tools`, `system`, or a role.

    Thinking of another model is none: the API drops it silently.
    """
    for n, tool in enumerate(body.get("tools", ())):
        yield f"tools.{n}", "tools", tool
    for n, block in enumerate(blocks(body.get("system", ""))):
        yield f"system.{n}", "system", block
    author = _author(body)
    for n, message in enumerate(body["messages"]):
        for m, block in enumerate(blocks(message["content"])):
            if block["type"] != "thinking" or not block["signature"] or is_by(author, block):
                yield f"messages.{n}.content.{m}", message["role"], block


def is_from_code(block: Json) -> bool:
    """A tool call that code made, and not the model itself."""
    caller: Json = block.get("caller") or {}
    from_code = block.get("type") == "tool_use" and caller.get("type", "").startswith(
        "code_execution"
    )
    return bool(from_code)


def _author(body: Json) -> str:
    model: str = body.get("model", "")
    return hashlib.sha256(model.encode("utf-8", "surrogatepass")).hexdigest()[:AUTHOR_CHARS]


def is_by(author: str, thought: Json) -> bool:
    seal: str = thought["signature"]
    return seal.startswith(SIGNATURE_PREFIX + author)


def _without_anchors(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("Json", value).items()
        return {key: _without_anchors(item) for key, item in items if key != "cache_control"}
    if isinstance(value, list):
        return [_without_anchors(item) for item in cast("list[Any]", value)]
    return value


def signature(prefix: str, thought: str) -> str:
    """Binds a thinking block to its text and, by a digest, to all that came before it."""
    text_digest = hashlib.sha256(thought.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{SIGNATURE_PREFIX}{prefix}.{text_digest}"
