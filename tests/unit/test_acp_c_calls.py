"""Calls of a client: bounded, settled by their ids, and of a known outcome wherever it is known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from session_worker.editor import READ, WRITE, Done, Editor, EditorFailed
from session_worker.http.acp_c.calls import Calls
from session_worker.http.acp_c.capabilities import offered
from session_worker.http.acp_c.feed import Feed
from session_worker.http.acp_c.jsonrpc import Answer
from sidecar.protocol.bounds import CLIENT_ERROR_CHARS

Json = dict[str, Any]
LONG_S = 30.0
SHORT_S = 0.01


class Outbox:
    """What a feed has to send; `pulled` once its client may have heard it."""

    def __init__(self) -> None:
        self.waiting: list[Json] = []
        self.pulled: list[Json] = []

    def send(self, message: Json) -> None:
        self.waiting.append(message)

    def retract(self, message: Json) -> bool:
        is_here = message in self.waiting
        self.waiting = [other for other in self.waiting if other is not message]
        return is_here

    def pull(self) -> None:
        self.pulled += self.waiting
        self.waiting = []


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


@pytest.fixture
def feed(outbox: Outbox) -> Feed:
    return cast("Feed", outbox)


@pytest.fixture
def calls() -> Calls:
    return Calls(lambda: "our-1", lambda: None)


async def failure(
    calls: Calls, feed: Feed, then: Callable[[], None], timeout_s: float = LONG_S
) -> EditorFailed:
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(asked(calls, feed, timeout_s))
        await asyncio.sleep(0)
        then()
    error = asking.result()
    assert isinstance(error, EditorFailed)
    return error


async def asked(calls: Calls, feed: Feed, timeout_s: float = LONG_S, settle_s: float = 0) -> Any:
    try:
        return await calls.ask(feed, WRITE, {}, timeout_s, settle_s)
    except EditorFailed as error:
        return error


async def test_the_answer_of_that_id_is_the_result_and_no_other(
    calls: Calls, feed: Feed, outbox: Outbox
) -> None:
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(asked(calls, feed))
        await asyncio.sleep(0)
        calls.settle(Answer("our-2", 2))
        calls.settle(Answer("our-1", 1))
        calls.settle(Answer("our-1", 3))
    assert asking.result() == 1
    calls.settle(Answer("our-1", 4))  # late, and nobody's
    assert [m["method"] for m in outbox.waiting] == [WRITE]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"code": 1, "message": "locked\nby \x1b[1mme"}, "locked by me"),
        ({"code": 1}, "without a reason"),
        ("text", "without a reason"),
        ({"message": "long " * CLIENT_ERROR_CHARS}, "long " * (CLIENT_ERROR_CHARS // 5 - 1)),
    ],
)
async def test_an_error_is_certain_and_told_in_its_words_on_one_line(
    calls: Calls, feed: Feed, said: Any, shown: str
) -> None:
    error = await failure(calls, feed, lambda: calls.settle(Answer("our-1", None, said)))
    assert error.is_certain
    assert str(error).startswith(f"refused {WRITE}: {shown}")
    assert len(str(error)) < CLIENT_ERROR_CHARS + 50


async def test_what_was_never_sent_was_not_done(calls: Calls, feed: Feed, outbox: Outbox) -> None:
    error = await failure(calls, feed, lambda: None, SHORT_S)
    assert error.is_certain and error.fell_silent
    assert outbox.waiting == []
    error = await failure(calls, feed, lambda: calls.fail(feed))
    assert error.is_certain and not error.fell_silent
    assert outbox.waiting == []


async def test_what_was_sent_and_not_answered_may_have_been_done_and_is_withdrawn(
    calls: Calls, feed: Feed, outbox: Outbox
) -> None:
    error = await failure(calls, feed, outbox.pull, SHORT_S)
    assert not error.is_certain
    assert outbox.waiting[0]["params"] == {"requestId": "our-1"}

    def leave() -> None:
        outbox.pull()
        calls.fail(feed)

    assert not (await failure(calls, feed, leave)).is_certain


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer("our-1", {"done": True}), "result"),
        (Answer("our-1", None, {"code": -32800}), "cancelled"),
        (None, "unknown"),
    ],
)
async def test_a_cancelled_call_says_what_is_known_of_it(
    calls: Calls, feed: Feed, outbox: Outbox, answer: Answer | None, outcome: str
) -> None:
    asking = asyncio.ensure_future(asked(calls, feed, settle_s=LONG_S if answer else SHORT_S))
    await asyncio.sleep(0)
    outbox.pull()
    asking.cancel()
    await asyncio.sleep(0)
    if answer:
        calls.settle(answer)
    if outcome == "result":
        assert await asking == {"done": True}
        return
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await asking
    assert bool(str(cancelled.value)) is (outcome == "unknown")


async def test_one_that_has_left_is_asked_nothing() -> None:
    asked: list[Any] = []

    async def send(*call: Any) -> None:
        asked.append(call)

    editor = Editor("s", frozenset({WRITE}), lambda: False, send, asked.append, asked.append)
    with pytest.raises(EditorFailed, match="has left") as failed:
        await editor.ask(WRITE, Done, {})
    assert failed.value.is_certain
    assert not editor.writes and asked == []


@pytest.mark.parametrize("result", [[], "done", 1])
async def test_a_result_of_another_shape_makes_no_sense(result: Any) -> None:
    async def send(*_: Any) -> Any:
        return result

    editor = Editor("s", frozenset(), lambda: True, send, lambda _: None, lambda _: None)
    with pytest.raises(EditorFailed, match="makes no sense"):
        await editor.ask(WRITE, Done, {})


@pytest.mark.parametrize(
    ("capabilities", "methods"),
    [
        ({}, set()),
        ({"fs": None, "terminal": None}, set()),
        ({"fs": {"readTextFile": True}}, {READ}),
        ({"fs": {"writeTextFile": True, "readTextFile": "yes"}}, {WRITE}),
        ({"fs": [True], "terminal": True}, {"terminal/create"}),
    ],
)
def test_only_what_is_offered_in_so_many_words_is_asked(
    capabilities: Json, methods: set[str]
) -> None:
    assert offered(capabilities) == methods
