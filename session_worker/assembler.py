"""One streamed response, put together from raw events. Pure and synchronous.

Whatever it is fed, it raises nothing but `ModelError`, and the message it returns is whole: it can
be written as JSON, sent back, and taken apart without checking again. After an error there is none.

Blocks and fields of unknown types are kept verbatim. A delta of unknown type does not say how it
changes its block, nor an event of unknown type what it is about: both are passed over. Only
`message_stop` proves completeness (anthropic.md §2.2); what follows it is not looked at.
The SDK's own accumulators accept truncated JSON and raise inside the iteration, so they are not
used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

from session_worker.blocks import Block
from session_worker.model_error import ModelError
from sidecar.protocol.bounds import MESSAGE_CHARS, MESSAGE_DEPTH

Event = dict[str, Any]

INVALID_JSON = "INVALID_JSON"
"""Key under which unparsable tool input is kept; such a call is answered, never run."""


_TEXT_DELTAS = {
    "text_delta": "text",
    "input_json_delta": "partial_json",
    "thinking_delta": "thinking",
}
_DELTAS = {*_TEXT_DELTAS, "signature_delta", "citations_delta", "compaction_delta"}
_OWN_TEXT = {
    "text": "text_delta",
    "thinking": "thinking_delta",
    "tool_use": "input_json_delta",
    "server_tool_use": "input_json_delta",
    "mcp_tool_use": "input_json_delta",
}
"""Another delta would give these blocks a field that makes the API refuse them for ever."""

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class Assembler:
    """Feed it every event of one stream in order, then take `message()`."""

    def __init__(self) -> None:
        self._message: dict[str, Any] | None = None
        self._usage: dict[str, Any] = {}
        self._blocks: list[Block] = []
        self._open: dict[Any, tuple[Block, dict[str, list[Any]]]] = {}
        self._chars = 0
        self._complete = False
        self._failure: ModelError | None = None

    @property
    def usage(self) -> dict[str, Any]:
        """The tokens reported so far: they are billed even if the attempt is discarded."""
        return dict(self._usage)

    @property
    def newest(self) -> Block:
        """The block that was started last, which its deltas fill in until it stops."""
        return self._blocks[-1]

    def message(self) -> dict[str, Any]:
        """The whole response, as the API would have sent it unstreamed. Raises `ModelError`."""
        if self._failure is not None:
            raise self._failure
        if self._message is None or not self._complete:
            raise ModelError("stream_truncated", "the stream ended before message_stop")
        return {**self._message, "content": self._blocks, "usage": self._usage}

    def feed(self, event: Event) -> None:
        """Raises `ModelError` for an `error` event, and for one that breaks the protocol."""
        if self._failure is not None:
            raise self._failure
        try:
            if not self._complete:
                self._apply(event)
        except ModelError as error:
            self._failure = error
            raise
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            self._failure = _broken(f"a malformed event, {error!r}")
            raise self._failure from error

    def _apply(self, event: Event) -> None:
        match event.get("type"):
            case "content_block_delta":
                self._delta(event["index"], event["delta"])
            case "content_block_start":
                self._start_block(event["index"], event["content_block"])
            case "content_block_stop":
                # one that closes nothing takes nothing away
                if opened := self._open.pop(event["index"], None):
                    _close(*opened)
            case "message_start":
                self._start(event["message"])
            case "message_delta":
                self._update(event)
            case "message_stop":
                self._stop()
            case "error":
                raise _reported(self._taken(event.get("error")))
            case _:
                pass  # ping, or a type younger than this code

    def _start(self, given: Any) -> None:
        if self._message is not None:
            raise _broken("a second message_start")
        self._message = self._taken(given)
        _check_fields(self._message)
        self._count(self._message.get("usage"))
        given_blocks: list[Any] = self._message.get("content") or []
        self._blocks = [self._block(block) for block in given_blocks]

    def _started(self) -> dict[str, Any]:
        if self._message is None:
            raise _broken("no message_start comes first")
        return self._message

    def _start_block(self, index: Any, given: Any) -> None:
        message = self._started()
        if index in self._open:
            raise _broken(f"block {index!r} starts again before its end")
        block = self._block(given)
        self._open[index] = (block, {})
        # in order of start: after a pre-filled message_start indexes may go on or begin at 0
        self._blocks.append(block)
        match block:
            case {"type": "fallback", "to": {"model": str(model)}}:
                message["model"] = model  # as the unstreamed message names who served the rest
            case _:
                pass

    def _delta(self, index: Any, delta: dict[str, Any]) -> None:
        kind = delta["type"]
        if kind not in _DELTAS:
            return
        if index not in self._open:
            # what it carries belongs nowhere: a message without it would have a hole
            raise _broken(f"a {kind} for block {index!r}, which is not open")
        block, parts = self._open[index]
        if kind in _TEXT_DELTAS:
            key = _TEXT_DELTAS[kind]
            text = delta[key]
            if not isinstance(text, str):
                raise _broken(f"a {kind} without text")
            self._grow(len(text))
            if key not in parts:
                if _OWN_TEXT.get(block["type"], kind) != kind:
                    raise _broken(f"a {kind} in a {block['type']} block")
                parts[key] = []
            # joined once, at the end of the block: adding to a string is quadratic
            parts[key].append(text)
        elif kind == "citations_delta":
            parts.setdefault("citations", []).append(self._taken(delta)["citation"])
        else:  # signature_delta and compaction_delta come once and whole
            fields = self._taken(delta)
            del fields["type"]
            _overwrite(block, fields)

    def _update(self, event: Event) -> None:
        message = self._started()
        taken = self._taken(event)
        self._count(taken.pop("usage", None))
        del taken["type"]
        delta: dict[str, Any] = taken.pop("delta", None) or {}
        fields = {**taken, **delta}
        old, new = message.get("container"), fields.get("container")
        if old and new and new.get("id") == old["id"]:
            fields["container"] = dict(old)
            _overwrite(fields["container"], new)  # so that an expires_at stays known
        _overwrite(message, fields)
        _check_fields(message)

    def _count(self, reported: dict[str, Any] | None) -> None:
        """Counts are cumulative: what is reported replaces, what is not stays."""
        for key, value in (reported or {}).items():
            if key.endswith("_tokens") and not isinstance(value, int | None):
                raise _broken(f"{key} is no number")
            if key == "cache_creation" and not isinstance(value, dict | None):
                raise _broken(f"{key} is no object")
        _overwrite(self._usage, reported or {})

    def _stop(self) -> None:
        self._started()
        for block, parts in self._open.values():
            if block.get("input") == {}:
                block["input"] = {INVALID_JSON: ""}  # if none came: no stop said that this is all
            _close(block, parts)
        calls = [block["id"] for block in self._blocks if block["type"] == "tool_use"]
        if len(set(calls)) < len(calls):
            raise _broken("two tool calls with one id")
        self._complete = True

    def _block(self, given: Any) -> Block:
        """A block as it starts, checked as far as anything of ours relies on it."""
        block = self._taken(given)
        if block.get("type") == "tool_use" and block.get("input") is None:
            block["input"] = {}
        match block:
            case {"type": "tool_use", "id": str(), "name": str(), "input": dict()}:
                pass
            case {"type": "text" | "thinking" as kind} if isinstance(block.get(kind), str | None):
                pass
            case {"type": str(kind)} if kind not in ("tool_use", "text", "thinking"):
                pass
            case _:
                raise _broken(f"a malformed {block.get('type')} block")
        return block

    def _taken(self, given: Any) -> dict[str, Any]:
        """A copy of an object that is not joined from parts, as JSON in UTF-8 can carry it."""
        if not isinstance(given, dict):
            raise _broken(f"{given!r} instead of an object")
        value = cast("dict[str, Any]", given)
        text = _encode(value)
        self._grow(len(text))
        if _is_too_deep(value, text):
            raise _broken("an object nested too deeply")
        mended = _mended(text)
        return dict(value) if mended is text else json.loads(mended)

    def _grow(self, chars: int) -> None:
        self._chars += chars
        if self._chars > MESSAGE_CHARS:
            raise _broken(f"more than {MESSAGE_CHARS} characters")


def _close(block: Block, parts: dict[str, list[Any]]) -> None:
    for key, values in parts.items():
        if key == "citations":
            block[key] = [*(block.get(key) or []), *values]
        elif key != "partial_json":
            block[key] = _mended((block.get(key) or "") + "".join(values))
        elif raw := "".join(values):
            block["input"] = _parse_input(raw)


def _parse_input(raw: str) -> dict[str, Any]:
    """Of duplicate keys the last one counts. Python reads more than it can send on: NaN, Infinity
    and half characters are as invalid as bad syntax."""
    raw = _mended(raw, lone="surrogatepass")
    try:
        parsed: Any = json.loads(raw)
        if isinstance(parsed, dict):
            value = cast("dict[str, Any]", parsed)
            text = _encode(value)
            text.encode()
            if not _is_too_deep(value, text):
                return value
    except (ValueError, RecursionError):
        pass
    return {INVALID_JSON: _mended(raw)}


def _mended(text: str, lone: str = "replace") -> str:
    """A character above U+FFFF may come in two halves, each in a delta of its own: join them.

    A half without its other cannot be sent in UTF-8, so it becomes U+FFFD.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", lone)
    return text


def _is_too_deep(value: dict[str, Any], text: str) -> bool:
    """`text` is the JSON of `value`; without many brackets in it there is nothing to walk."""
    if text.count("{") + text.count("[") <= MESSAGE_DEPTH:
        return False
    level: list[Any] = [value]
    for _ in range(MESSAGE_DEPTH):
        inside = (_children(node) for node in level)
        level = [
            child for children in inside for child in children if isinstance(child, dict | list)
        ]
    return bool(level)


def _children(node: Any) -> Iterable[Any]:
    return cast("dict[str, Any]", node).values() if isinstance(node, dict) else node


def _overwrite(target: dict[str, Any], fields: dict[str, Any]) -> None:
    """The newest value counts, but null never takes one away."""
    for key, value in fields.items():
        if value is not None or key not in target:
            target[key] = value


def _check_fields(message: dict[str, Any]) -> None:
    match message.get("container"):
        case None | {"id": str()}:
            pass
        case other:
            raise _broken(f"the container is {other!r}")
    for key in ("id", "model", "stop_reason"):
        if not isinstance(message.get(key), str | None):
            raise _broken(f"the {key} is {message[key]!r}")


def _reported(error: dict[str, Any]) -> ModelError:
    match error:
        case {"type": str(kind), "message": str(message), "details": {"error_code": str(code)}}:
            return ModelError(kind, message, code=code, details=error["details"])
        case {"type": str(kind), "message": str(message)}:
            return ModelError(kind, message)
        case _:
            return ModelError("api_error", f"the model reported {error!r}")


def _broken(what: str) -> ModelError:
    return ModelError("protocol_error", f"the model's stream is broken: {what}")
