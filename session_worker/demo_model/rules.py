"""The rules the Messages API enforces, with its wordings (anthropic.md §3).

Called by the server before any script; pure. A message that the API would refuse is refused
here in the same words, so that the repairs of an agent loop can be tested.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

from session_worker.demo_model.code_rules import check_code
from session_worker.demo_model.conversation import blocks
from session_worker.demo_model.history import OF_THE_MODEL, SERVER_CALLS, check_history
from session_worker.demo_model.images import check_images
from session_worker.demo_model.reply import ApiError, Json
from session_worker.demo_model.usage import TTL_S

CACHE_ANCHORS = 4
TOOL_NAME_CHARS = 128
"""What the live API takes; its documentation says 64."""
REQUIRED: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
    "tool_use": {"id": str, "name": str, "input": dict},
    "server_tool_use": {"id": str, "name": str, "input": dict},
    "mcp_tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"tool_use_id": str},
    "image": {"source": dict},
}
"""What a content block must have, by its type."""
REQUIRED_OF_RESULTS: dict[str, type] = {"tool_use_id": str}
"""The same of the results of server tools."""
PATTERNS = {
    ("tool_use", "id"): "^[a-zA-Z0-9_-]+$",
    ("tool_use", "name"): "^[a-zA-Z0-9_-]{1,128}$",
    ("server_tool_use", "id"): "^[a-zA-Z0-9_-]+$",
}
NO_PREFILL = re.compile(r"claude-[a-z]+-5-[1-9]")
"""Models that answer, and never go on with an answer that was begun for them (anthropic.md §2)."""
TYPE_NAMES = {str: "string", dict: "dictionary"}


def check_request(
    body: Any, headers: Mapping[str, str], models: Collection[str] = ()
) -> ApiError | None:
    """The first rule this call breaks. Header names are lower case or the mapping ignores case.

    Without `models` every model name is known.
    """
    return next(_violations(body, headers, models), None)


def _violations(
    body: Any, headers: Mapping[str, str], models: Collection[str]
) -> Iterator[ApiError]:
    if "x-api-key" not in headers and "authorization" not in headers:
        yield ApiError(401, "x-api-key header is required")
    if "anthropic-version" not in headers:
        yield ApiError(400, "anthropic-version: header is required")
    if not _is_text(body):
        yield ApiError(400, "The request body is not valid JSON: no low surrogate in string")
    # only the first is ever asked for: each group may rely on what the groups before it demand
    for wording in _shape(body):
        yield ApiError(400, wording)
    if models and body["model"] not in models:
        yield ApiError(404, f"model: {body['model']}")
    for group in (_tools, _text, _anchors, check_history, _prefill):
        for wording in group(body):
            yield ApiError(400, wording)
    for wording in check_code(body, headers):
        yield ApiError(400, wording)
    yield from check_images(body)


def _is_text(body: Any) -> bool:
    """Python reads half a surrogate pair; the API does not."""
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _shape(body: Any) -> Iterator[str]:
    if not isinstance(body, dict):
        yield "Input should be a valid dictionary"
    fields = cast("Json", body)
    for name in ("model", "max_tokens", "messages"):
        if name not in fields:
            yield f"{name}: Field required"
    if not isinstance(fields["model"], str):
        yield "model: Input should be a valid string"
    if not isinstance(fields["max_tokens"], int):
        yield "max_tokens: Input should be a valid integer"
    if fields["max_tokens"] < 1:
        yield "max_tokens: Input should be greater than or equal to 1"
    for name in ("messages", "tools"):
        if not _is_dicts(fields.get(name, [])):
            yield f"{name}: Input should be a valid list"
    yield from _content("system", fields.get("system", ""))
    if not fields["messages"]:
        yield "messages: at least one message is required"
    for n, message in enumerate(fields["messages"]):
        if message.get("role") not in ("user", "assistant", "system"):
            yield f"messages.{n}.role: Input should be 'user' or 'assistant'"
        yield from _content(f"messages.{n}.content", message.get("content"))
    if fields["messages"][0]["role"] != "user":
        yield 'messages: first message must use the "user" role'


def _content(where: str, content: Any) -> Iterator[str]:
    if not _is_content(content):
        yield f"{where}: Input should be a valid list"
    for m, block in enumerate(blocks(content)):
        place = f"{where}.{m}.{block['type']}"
        is_server_result = block["type"].endswith("_tool_result")
        required = REQUIRED_OF_RESULTS if is_server_result else REQUIRED.get(block["type"], {})
        for name, kind in required.items():
            if name not in block:
                yield f"{place}.{name}: Field required"
            if not isinstance(block[name], kind):
                yield f"{place}.{name}: Input should be a valid {TYPE_NAMES[kind]}"
            pattern = PATTERNS.get((block["type"], name))
            if pattern and not re.search(pattern, block[name]):
                yield f"{place}.{name}: String should match pattern '{pattern}'"
        if block["type"] == "tool_result":
            yield from _result(place, block)


def _result(place: str, block: Json) -> Iterator[str]:
    yield from _content(f"{place}.content", block.get("content", ""))
    if not isinstance(block.get("is_error", False), bool):
        yield f"{place}.is_error: Input should be a valid boolean"
    for part in _parts(block):
        if part["type"] == "tool_result" or part["type"] in OF_THE_MODEL:
            yield (
                f"{place}.content: Input tag '{part['type']}' found using 'type' does not match "
                "any of the expected tags: 'document', 'image', 'search_result', 'text', "
                "'tool_reference'"
            )
        if block.get("is_error") and part["type"] != "text":
            yield f'{place}: all content must be type "text" if `is_error` is true'


def _is_dicts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, dict) for v in cast("list[Any]", value))


def _is_content(value: Any) -> bool:
    return isinstance(value, str) or (
        _is_dicts(value) and all(isinstance(block.get("type"), str) for block in value)
    )


def _tools(body: Json) -> Iterator[str]:
    tools: list[Json] = body.get("tools", [])
    for n, tool in enumerate(tools):
        if tool.get("type", "custom") != "custom":
            continue
        for name in ("name", "input_schema"):
            if name not in tool:
                yield f"tools.{n}.custom.{name}: Field required"
        if not isinstance(tool["name"], str):
            yield f"tools.{n}.custom.name: Input should be a valid string"
        if len(tool["name"]) > TOOL_NAME_CHARS:
            yield f"tools.{n}.custom.name: String should have at most 128 characters"
        if not re.fullmatch(r"[a-zA-Z0-9_-]+", tool["name"]):
            yield f"tools.{n}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
    names = [tool["name"] for tool in tools if "name" in tool]
    if len(names) > len(set(names)):
        yield "tools: Tool names must be unique."


def _text(body: Json) -> Iterator[str]:
    messages: list[Json] = body["messages"]
    for n, message in enumerate(messages[:-1] if messages[-1]["role"] == "assistant" else messages):
        if not message["content"]:
            yield (
                f"messages.{n}: all messages must have non-empty content "
                "except for the optional final assistant message"
            )
    inner = [block for message in messages for block in blocks(message["content"])]
    nested = [part for block in inner for part in _parts(block)]
    for where, content in (
        ("system", blocks(body.get("system", ""))),
        ("messages", inner + nested),
    ):
        for words in (block["text"] for block in content if block["type"] == "text"):
            if not words:
                yield f"{where}: text content blocks must be non-empty"
            if not words.strip():
                yield f"{where}: text content blocks must contain non-whitespace text"
    last = [block.get("text", "") for block in blocks(messages[-1]["content"])]
    if messages[-1]["role"] == "assistant" and last and last[-1][-1:].isspace():
        yield "messages: final assistant content cannot end with trailing whitespace"


def _prefill(body: Json) -> Iterator[str]:
    """What a paused answer ends with is a guess; the API knows that it paused it."""
    last: Json = body["messages"][-1]
    end = blocks(last["content"]) if last["role"] == "assistant" else []
    if end and end[-1]["type"] in ("thinking", "redacted_thinking"):
        yield (
            f"messages.{len(body['messages']) - 1}: The final block in an assistant message "
            "cannot be `thinking`."
        )
    ended = {block.get("tool_use_id") for block in end}
    waits = any(b["type"] in SERVER_CALLS and b["id"] not in ended for b in end)
    paused = waits or any(
        b["type"] == "compaction" or b["type"].endswith("_tool_result") for b in end[-1:]
    )
    if end and not paused and "compaction" not in body and NO_PREFILL.match(body["model"]):
        yield (
            "This model does not support assistant message prefill. The conversation must end "
            "with a user message."
        )


def _parts(block: Json) -> list[Json]:
    """The blocks inside a `tool_result`, if its content is no plain string."""
    content = block.get("content") if block["type"] == "tool_result" else None
    return cast("list[Json]", content) if isinstance(content, list) else []


def _anchors(body: Json) -> Iterator[str]:
    places = [(f"tools.{n}", tool) for n, tool in enumerate(body.get("tools", []))]
    places += [(f"system.{n}", block) for n, block in enumerate(blocks(body.get("system", "")))]
    for n, message in enumerate(body["messages"]):
        for m, block in enumerate(blocks(message["content"])):
            where = f"messages.{n}.content.{m}"
            places.append((where, block))
            places += [(f"{where}.content.{k}", part) for k, part in enumerate(_parts(block))]
    places.append(("", body))
    marked = [
        (where, block["cache_control"]) for where, block in places if "cache_control" in block
    ]
    if len(marked) > CACHE_ANCHORS:
        yield (
            f"A maximum of {CACHE_ANCHORS} blocks with cache_control may be provided. "
            f"Found {len(marked)}."
        )
    shortest = "1h"
    for where, anchor in marked:
        ttl = anchor.get("ttl", "5m")
        if ttl not in TTL_S:
            yield f"{where}.cache_control.ttl: Input should be '5m' or '1h'"
        if ttl == "1h" and shortest == "5m":
            yield (
                f"{where}.cache_control.ttl: a ttl='1h' cache_control block must not come after "
                "a ttl='5m' cache_control block. Note that blocks are processed in the following "
                "order: `tools`, `system`, `messages`."
            )
        shortest = ttl
