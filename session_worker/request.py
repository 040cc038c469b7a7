"""The body of a model call as bytes, of which only what is new is made anew.

A session's requests share all but their end, so each message is serialised once, when it is first
sent. The SDK would walk the whole history every turn, to validate and to copy it. Tools and system
come first and stay the same bytes; so does every message before the newest two of the user, which
carry the cache breakpoints (tools-and-ux.md §4).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from session_worker.blocks import Block, Message
from sidecar.protocol import bounds

_SHORT = {"type": "ephemeral"}
_LONG = {"type": "ephemeral", "ttl": "1h"}
"""For what never changes: people come back to a session after more than five minutes."""


class RequestWriter:
    """Writes the requests of one session. `system` and `tools` are frozen with it."""

    def __init__(
        self,
        model: str,
        system: str,
        tools: Sequence[Block],
        *,
        cached: bool,
        mcp_servers: Sequence[Block] = (),
    ) -> None:
        """`cached` is whether the endpoint knows prompt caching. `mcp_servers` are those that the
        API is to connect to; `tools` has their toolsets."""
        text: Block = {"type": "text", "text": system}
        self._cached = cached
        self._system = _dump([text | {"cache_control": _LONG} if cached else text])
        self._tools = _dump(list(tools))
        self._model = _dump(model)
        if mcp_servers:
            self._model += b',"mcp_servers":' + _dump(list(mcp_servers))
        self._sent: list[Message] = []
        self._bytes: list[bytes] = []

    @property
    def prefix_bytes(self) -> int:
        """Size of what comes before the messages and never changes."""
        return len(self._system) + len(self._tools)

    def prefix_request(self) -> bytes:
        """A request for counting the tokens of the prefix: the API wants one word behind it."""
        message = _dump([{"role": "user", "content": "."}])
        fields = (self._model, self._tools, self._system, message)
        return b'{"model":%b,"tools":%b,"system":%b,"messages":%b}' % fields

    def write(self, messages: Sequence[Message], max_tokens: int, **more: Any) -> bytes:
        """One streamed request with these messages, one at least. `more` are further parameters;
        one that is None is left out.

        Contract: a message once passed is never mutated; a changed one is another object.
        """
        head = [
            b'{"model":' + self._model,
            b'"max_tokens":' + _dump(max_tokens),
            b'"stream":true',
            *(_dump(k) + b":" + _dump(v) for k, v in more.items() if v is not None),
            b'"tools":' + self._tools,
            b'"system":' + self._system,
        ]
        bodies = self._bodies(messages)
        bodies[0] = b'"messages":[' + bodies[0]
        bodies[-1] += b"]}"
        return b",".join(head + bodies)  # one copy: memory for a second costs more than copying

    def _bodies(self, messages: Sequence[Message]) -> list[bytes]:
        self._forget_changed(messages)
        new = messages[len(self._sent) :]
        self._sent += new
        self._bytes += map(_dump, new)
        bodies = self._bytes.copy()
        if self._cached:
            for place, blocks in breakpoints(messages).items():
                bodies[place] = _dump(_with_breakpoints(messages[place], blocks))
        return bodies

    def _forget_changed(self, messages: Sequence[Message]) -> None:
        """Keep the bytes of the messages that are still the same, from the start on."""
        if self._sent == messages[: len(self._sent)]:  # in C, by identity
            return
        pairs = zip(self._sent, messages, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
        del self._sent[same:], self._bytes[same:]


def breakpoints(messages: Sequence[Message]) -> dict[int, list[int]]:
    """Blocks by message: at most three, after the one on the system prompt. Pure.

    The newest user message is where the next call will read up to. The one before it is where this
    call reads, should it have been sent already. A turn of more blocks than the API looks back over
    gets one inside it.
    """
    users = (n for n in range(len(messages) - 1, -1, -1) if messages[n]["role"] == "user")
    newest, before = next(users, None), next(users, None)
    found: dict[int, list[int]] = {}
    if before is not None:
        found[before] = [len(messages[before]["content"]) - 1]
    if newest is not None:
        last = len(messages[newest]["content"]) - 1
        inside = bounds.CACHE_LOOKBACK_BLOCKS
        found[newest] = [inside, last] if last > inside else [last]
    return found


def _with_breakpoints(message: Message, places: list[int]) -> Message:
    content = list(message["content"])
    for place in places:
        content[place] = content[place] | {"cache_control": _SHORT}
    return {**message, "content": content}


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
