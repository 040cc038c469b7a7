"""What the session's tools ask one client and wait for: `fs/*` and `terminal/*` (acp.md §2.2).

A call is bounded, fails with its client, and is withdrawn when nobody waits for it any more. Not
for questions to people: those outlive their connection (`questions`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from session_worker.editor import EditorFailed
from session_worker.http.acp_c import jsonrpc
from session_worker.http.acp_c.feed import Feed
from session_worker.http.acp_c.jsonrpc import Answer, Json
from session_worker.project.tagged import one_line
from sidecar.protocol.bounds import CLIENT_ERROR_CHARS

_LEFT = Answer(None, None, {"message": "left"})


@dataclass(frozen=True)
class _Open:
    feed: Feed
    request: Json
    answer: asyncio.Future[Answer]


class Calls:
    """One connection's. `mint` makes ids, `ring` says that there is something to send."""

    def __init__(self, mint: Callable[[], str], ring: Callable[[], None]) -> None:
        self._mint = mint
        self._ring = ring
        self._open: dict[str, _Open] = {}

    async def ask(
        self, feed: Feed, method: str, params: Json, timeout_s: float, settle_s: float
    ) -> Any:
        """The result that the client of `feed` answers with. Raises `EditorFailed`.

        A cancelled call waits `settle_s` for the answer to it, and returns a result that comes. If
        the cancellation leaves and it may have been done, its text says so.
        """
        message_id = self._mint()
        request = jsonrpc.request(message_id, method, params)
        call = _Open(feed, request, asyncio.get_running_loop().create_future())
        self._open[message_id] = call
        feed.send(request)
        self._ring()
        try:
            try:
                async with asyncio.timeout(timeout_s):
                    await asyncio.wait([call.answer])
            except TimeoutError:
                text = f"did not answer {method} within {timeout_s:g} s"
                was_said = self._withdraw(call)
                raise EditorFailed(text, is_certain=not was_said, fell_silent=True) from None
            except asyncio.CancelledError:
                if not self._withdraw(call):
                    raise
                await asyncio.wait([call.answer], timeout=settle_s)
                if not call.answer.done() or call.answer.result() is _LEFT:
                    raise asyncio.CancelledError("the client may or may not have done it") from None
                if call.answer.result().error is not None:
                    raise
        finally:
            del self._open[message_id]
        return self._result(call, method)

    def _result(self, call: _Open, method: str) -> Any:
        answer = call.answer.result()
        if answer is _LEFT:
            was_said = not call.feed.retract(call.request)
            raise EditorFailed("has left", is_certain=not was_said)
        if answer.error is not None:
            raise EditorFailed(f"refused {method}: {_said(answer.error)}", is_certain=True)
        return answer.result

    def _withdraw(self, call: _Open) -> bool:
        """Nobody waits any more; whether the client may have heard of it."""
        if call.feed.retract(call.request):
            return False
        call.feed.send(jsonrpc.withdrawal(call.request["id"]))
        self._ring()
        return True

    def settle(self, answer: Answer) -> None:
        """Take an answer; of what is not open, or has its answer, nothing."""
        if (call := self._open.get(str(answer.id))) and not call.answer.done():
            call.answer.set_result(answer)

    def fail(self, feed: Feed) -> None:
        """Its client is gone."""
        for call in self._open.values():
            if call.feed is feed and not call.answer.done():
                call.answer.set_result(_LEFT)


def _said(error: Any) -> str:
    """A client's error in its own words, on one line."""
    match error:
        case {"message": str(message)} if message.strip():
            return one_line(message[: 2 * CLIENT_ERROR_CHARS])[:CLIENT_ERROR_CHARS]
        case _:
            return "without a reason"
