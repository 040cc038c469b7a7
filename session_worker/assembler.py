"""One streamed response, put together from raw events. Pure and synchronous.

Blocks and deltas of unknown type are kept verbatim; only `message_stop` proves completeness
(anthropic.md §2.2). The SDK's own accumulators accept truncated JSON and raise inside the
iteration, so they are not used.
"""

from __future__ import annotations

import json
from typing import Any, cast

from session_worker.model_error import ModelError

Block = dict[str, Any]
Event = dict[str, Any]

INVALID_JSON = "INVALID_JSON"
"""Key under which unparsable tool input is kept; such a call is answered, never run."""


_TEXT_DELTAS = {
    "text_delta": "text",
    "input_json_delta": "partial_json",
    "thinking_delta": "thinking",
}


class Assembler:
    """Feed it every event of one stream in order, then take `message()`."""

    def __init__(self) -> None:
        self._message: dict[str, Any] | None = None
        self._blocks: list[Block] = []
        self._open: dict[int, tuple[Block, dict[str, list[str]]]] = {}
        self._complete = False

    def feed(self, event: Event) -> None:
        """Raises `ModelError` for an `error` event, and for one that breaks the protocol."""
        try:
            self._apply(event)
        except (KeyError, TypeError, AttributeError) as error:
            raise ModelError("protocol_error", f"malformed stream event: {error!r}") from error

    def _apply(self, event: Event) -> None:
        match event.get("type"):
            case "content_block_delta":
                self._delta(event["index"], event["delta"])
            case "content_block_start":
                block: Block = dict(event["content_block"])
                self._blocks.append(block)
                self._open[event["index"]] = (block, {})
            case "content_block_stop":
                self._close(event["index"])
            case "message_start":
                self._message = dict(event["message"])
                given: list[Block] = self._message.get("content") or []
                self._blocks = [dict(block) for block in given]
            case "message_delta":
                self._update(event)
            case "message_stop":
                self._complete = self._message is not None
            case "error":
                error: dict[str, Any] = event.get("error") or {}
                raise ModelError(str(error.get("type")), str(error.get("message")))
            case _:
                pass  # ping, or a type younger than this code

    def _delta(self, index: int, delta: dict[str, Any]) -> None:
        # parts are joined once, at the end of the block: adding to a string is quadratic
        if index not in self._open:
            return
        block, parts = self._open[index]
        kind = delta.get("type", "")
        if kind in _TEXT_DELTAS:
            key = _TEXT_DELTAS[kind]
            parts.setdefault(key, []).append(delta[key])
        elif kind == "signature_delta":
            block["signature"] = delta["signature"]
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]

    def _close(self, index: int) -> None:
        block, parts = self._open.pop(index, ({}, {}))
        for key, texts in parts.items():
            if key == "partial_json":
                block["input"] = _parse_input("".join(texts))
            else:
                block[key] = (block.get(key) or "") + "".join(texts)

    def _update(self, event: Event) -> None:
        if self._message is None:
            return
        for key, value in event.get("delta", {}).items():
            if value is not None:
                self._message[key] = value
        reported: dict[str, Any] = event.get("usage") or {}
        usage: dict[str, Any] = self._message.get("usage") or {}
        known = {k: v for k, v in reported.items() if v is not None}
        self._message["usage"] = {**usage, **known}

    def message(self) -> dict[str, Any]:
        """The whole response, as the API would have sent it unstreamed. Raises `ModelError`.

        A tool input that was still arriving is marked unparsable.
        """
        if self._message is None or not self._complete:
            raise ModelError("stream_truncated", "the stream ended before message_stop")
        for index in list(self._open):
            self._close(index)
        return {**self._message, "content": self._blocks}


def _parse_input(raw: str) -> dict[str, Any]:
    try:
        parsed: Any = json.loads(raw or "{}")
    except ValueError:
        parsed = None
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {INVALID_JSON: raw}
