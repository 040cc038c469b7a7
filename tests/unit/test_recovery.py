"""Which failure of a model call leads to what, in every state the call may be in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_worker.model_error import ModelError
from session_worker.recovery import (
    Advice,
    Compact,
    DropContainer,
    Fail,
    Repair,
    Retry,
    Shorten,
    Tried,
    advise,
    retry_after,
)
from session_worker.turn import StopReason

NEW = Tried()
BAD = "invalid_request_error"
NO_ROOM = "input length and `max_tokens` exceed context limit: {} + {} > 200000, decrease input"
UNPAIRED = (
    "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: "
    "toolu_1. Each `tool_use` block must have a corresponding `tool_result` block in the next."
)
EXPIRED = "Container `container_01` has expired"


def after(
    kind: str = "api_error", message: str = "words", tried: Tried = NEW, **more: Any
) -> Advice:
    return advise(ModelError(kind, message, **more), tried, jitter=1.0)


def refused(message: str, tried: Tried = NEW, **more: Any) -> Advice:
    return after(BAD, message, tried, status=400, **more)


REQUEST_FAULTS = {
    "refused connection": {"kind": "connection_error"},
    "no answer in time": {"kind": "timeout_error"},
    "408": {"kind": "http_408", "status": 408},
    "409": {"kind": "conflict_error", "status": 409},
    "429": {"kind": "rate_limit_error", "status": 429},
    "429 ramp": {"kind": "rate_limit_error", "status": 429, "code": "ramp_limit_exceeded"},
    "500": {"kind": "api_error", "status": 500},
    "500 untyped": {"kind": "http_500", "status": 500},
    "502 of a proxy": {"kind": "http_502", "status": 502},
    "503": {"kind": "http_503", "status": 503},
    "504": {"kind": "timeout_error", "status": 504},
    "529": {"kind": "overloaded_error", "status": 529},
    "529 compaction": {"kind": "overloaded_error", "status": 529, "code": "compaction_unavailable"},
    "400 that the server wants retried": {"kind": BAD, "status": 400, "should_retry": True},
    "overloaded event before anything": {"kind": "overloaded_error"},
    "api_error event before anything": {"kind": "api_error"},
    "rate limit event before anything": {"kind": "rate_limit_error"},
}
STREAM_FAULTS = {
    "overloaded event": {"kind": "overloaded_error", "streamed": True},
    "api_error event": {"kind": "api_error", "streamed": True},
    "rate limit event": {"kind": "rate_limit_error", "streamed": True},
    "timeout event": {"kind": "timeout_error", "streamed": True},
    "FIN or RST": {"kind": "connection_error", "status": 200, "streamed": True},
    "FIN or RST before anything": {"kind": "connection_error", "status": 200},
    "stall": {"kind": "timeout_error", "status": 200, "streamed": True},
    "clean end or half event": {"kind": "stream_truncated", "streamed": True},
    "end before anything": {"kind": "stream_truncated"},
    "HTML with 200": {"kind": "protocol_error"},
    "event that is no JSON": {"kind": "protocol_error", "streamed": True},
}
HOPELESS = {
    "400": {"kind": BAD, "status": 400},
    "400 compaction": {"kind": BAD, "status": 400, "code": "compaction_content_mismatch"},
    "401": {"kind": "authentication_error", "status": 401},
    "402": {"kind": "billing_error", "status": 402},
    "402 cap": {
        "kind": "billing_error",
        "status": 402,
        "code": "linked_organization_spend_limit_reached",
        "should_retry": True,
    },
    "403": {"kind": "permission_error", "status": 403},
    "404": {"kind": "not_found_error", "status": 404},
    "412": {"kind": "http_412", "status": 412},
    "422": {"kind": BAD, "status": 422},
    "429 enforced": {
        "kind": "rate_limit_error",
        "status": 429,
        "code": "enforced_spend_limit_reached",
    },
    "429 contract": {
        "kind": "rate_limit_error",
        "status": 429,
        "code": "contract_spend_limit_reached",
        "should_retry": True,
    },
    "429 that the server wants left": {
        "kind": "rate_limit_error",
        "status": 429,
        "should_retry": False,
    },
    "a redirect": {"kind": "http_302", "status": 302},
    "certificate": {"kind": "tls_error", "should_retry": True},
    "no credentials": {"kind": "client_error"},
    "permission event": {"kind": "permission_error", "streamed": True},
}
CURABLE = {
    UNPAIRED: Repair("pairing"),
    "messages.1.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1. Each "
    "`tool_result` block must have a corresponding `tool_use` block.": Repair("pairing"),
    "`web_search` tool use with id `srvtoolu_1` was found without a corresponding "
    "`web_search_tool_result` block": Repair("pairing"),
    "messages.3.content.1: `tool_use` ids must be unique": Repair("pairing"),
    "messages.2.content.1: each tool_use must have a single result. Found multiple "
    "`tool_result` blocks with id: toolu_1": Repair("pairing"),
    "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant "
    "message cannot be modified. They must remain.": Repair("thinking"),
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a "
    "different conversation.": Repair("thinking"),
    "messages.4.content.2: At least one of the image dimensions exceed max allowed size for "
    "many-image requests: 2000 pixels": Repair("images", ("messages.4.content.2",)),
    "messages.0.content.1.content.0.image.source.base64: image exceeds 10 MB maximum: 1 > 0": (
        Repair("images", ("messages.0.content.1.content.0",))
    ),
    "Could not process image": Repair("images"),
    "messages: text content blocks must be non-empty": Repair("text"),
    "messages: text content blocks must contain non-whitespace text": Repair("text"),
    "messages.2: all messages must have non-empty content except for the optional final "
    "assistant message": Repair("text"),
    "messages: final assistant content cannot end with trailing whitespace": Repair("text"),
    "cache_control cannot be set for empty text blocks": Repair("text"),
}
STATES = [
    NEW,
    Tried(request_retries=3, stream_retries=2),
    Tried(shortened=True, compacted=True),
    Tried(repaired=True),
    Tried(container_dropped=True),
]


def ids(faults: dict[str, Any]) -> dict[str, Any]:
    return {"argvalues": list(faults.values()), "ids": list(faults)}


@pytest.mark.parametrize("tried", STATES)
@pytest.mark.parametrize("fault", **ids(REQUEST_FAULTS))
def test_a_request_that_failed_in_passing_is_sent_again(
    fault: dict[str, Any], tried: Tried
) -> None:
    wait_s = 0.5 * 2**tried.request_retries
    assert after(**fault, tried=tried) == Retry(wait_s, fault["kind"], discard=False)


@pytest.mark.parametrize("tried", STATES)
@pytest.mark.parametrize("fault", **ids(STREAM_FAULTS))
def test_an_answer_that_broke_off_is_discarded_and_asked_for_again(
    fault: dict[str, Any], tried: Tried
) -> None:
    wait_s = 0.5 * 2**tried.stream_retries
    assert after(**fault, tried=tried) == Retry(wait_s, fault["kind"], discard=True)


@pytest.mark.parametrize("tried", STATES)
@pytest.mark.parametrize("fault", **ids(HOPELESS))
def test_what_no_retry_can_change_ends_the_run(fault: dict[str, Any], tried: Tried) -> None:
    assert after(**fault, tried=tried) == Fail(StopReason.ERROR, fault["kind"], "words")


def test_requests_are_retried_eight_times_and_answers_five_times() -> None:
    for fault, most in ((REQUEST_FAULTS["529"], 8), (STREAM_FAULTS["stall"], 5)):
        tried = NEW
        for _ in range(most):
            advice = after(**fault, tried=tried)
            assert isinstance(advice, Retry)
            tried = tried.then(advice)
        assert tried.attempt == most + 1
        why = f"words (given up after {most} retries)"
        assert after(**fault, tried=tried) == Fail(StopReason.ERROR, fault["kind"], why)


def test_the_two_kinds_of_retries_are_counted_apart() -> None:
    assert isinstance(after(**STREAM_FAULTS["stall"], tried=Tried(request_retries=8)), Retry)
    assert isinstance(after(**REQUEST_FAULTS["529"], tried=Tried(stream_retries=5)), Retry)


def test_pauses_double_up_to_thirty_seconds_and_a_random_part_is_waited() -> None:
    waits = [advise(ModelError("api_error", ""), Tried(request_retries=n), 1.0) for n in range(8)]
    assert [w.wait_s for w in waits if isinstance(w, Retry)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert advise(ModelError("api_error", ""), NEW, 0.25) == Retry(0.125, "api_error", False)


def test_a_server_is_given_the_time_it_asks_for_up_to_two_minutes() -> None:
    busy: dict[str, Any] = {"kind": "rate_limit_error", "status": 429}
    assert after(**busy, retry_after_s=120.0) == Retry(120.0, "rate_limit_error", False)
    assert after(**busy, retry_after_s=0.0) == Retry(0.5, "rate_limit_error", False)
    for seconds, words in ((120.5, "3 min"), (3_600.0, "60 min"), (9_000.0, "2.5 h")):
        assert after(**busy, retry_after_s=seconds) == Fail(
            StopReason.ERROR,
            "rate_limit_error",
            f"words (the server asks to wait {words} before the next try)",
        )


@pytest.mark.parametrize("message", list(CURABLE))
def test_a_refusal_with_a_known_cure_is_cured_once(message: str) -> None:
    assert refused(message) == CURABLE[message]
    assert after(BAD, message) == CURABLE[message], "the same in an event"
    for tried in (Tried(repaired=True), Tried(container_dropped=True)):
        assert refused(message, tried) == Fail(StopReason.ERROR, BAD, message)


def test_a_cure_does_not_wait_for_the_server_to_recommend_a_retry() -> None:
    assert refused(UNPAIRED, should_retry=False) == Repair("pairing")


def test_the_api_says_which_images_are_too_large() -> None:
    paths = ["messages.0.content.1", "messages.2.content.0.content.3"]
    details: dict[str, Any] = {"error_code": "image_dimensions_too_large", "paths": paths}
    error: dict[str, Any] = {"code": "image_dimensions_too_large", "details": details}
    assert refused("new words", **error) == Repair("images", tuple(paths))
    assert refused("new words", code="image_dimensions_too_large") == Repair("images")


def test_of_a_request_beyond_all_size_the_images_are_dropped() -> None:
    edge: dict[str, Any] = {"kind": "http_413", "status": 413}
    assert after(**edge) == Repair("images")
    assert isinstance(after(**edge, tried=Tried(repaired=True)), Fail)


def test_a_refused_compaction_is_no_reason_to_touch_the_history() -> None:
    code = "compaction_signature_invalid"
    message = "messages.0.content.0: Invalid `signature` in `thinking` block"
    assert isinstance(refused(message, code=code), Fail)


def test_an_answer_that_has_no_room_is_shortened_once_then_the_history_is_compacted_once() -> None:
    message = NO_ROOM.format(180_000, 32_000)
    tried = NEW
    for advice in (Shorten(20_000), Compact()):
        assert refused(message, tried) == advice
        tried = tried.then(advice)
    assert refused(message, tried) == Fail(StopReason.CONTEXT_LIMIT, BAD, message)


def test_too_little_room_is_no_room() -> None:
    assert refused(NO_ROOM.format(195_904, 32_000)) == Shorten(4_096)
    assert refused(NO_ROOM.format(195_905, 32_000)) == Compact()
    assert refused(NO_ROOM.format(210_000, 32_000)) == Compact()


@pytest.mark.parametrize("status", [400, 413])
def test_a_prompt_that_is_too_long_is_compacted_once(status: int) -> None:
    message = "prompt is too long: 210000 tokens > 200000 maximum"
    assert after(BAD, message, status=status) == Compact()
    assert after(BAD, message, Tried(repaired=True), status=status) == Compact()
    assert after(BAD, message, Tried(compacted=True), status=status) == Fail(
        StopReason.CONTEXT_LIMIT, BAD, message
    )


@pytest.mark.parametrize(("kind", "status"), [(BAD, 400), ("not_found_error", 404)])
def test_an_expired_container_is_forgotten_once_if_nothing_waits_in_it(
    kind: str, status: int
) -> None:
    holding = Tried(container=True)
    assert after(kind, EXPIRED, holding, status=status) == DropContainer()
    assert after(kind, EXPIRED, status=status) == Fail(StopReason.ERROR, kind, EXPIRED)
    again = replace(holding.then(DropContainer()), container=True)
    assert after(kind, EXPIRED, again, status=status) == Fail(StopReason.ERROR, kind, EXPIRED)


def test_a_server_error_that_says_nothing_twice_may_mean_an_expired_container() -> None:
    untyped = REQUEST_FAULTS["500 untyped"]
    tried = Tried(container=True)
    first = after(**untyped, tried=tried)
    assert isinstance(first, Retry)
    tried = tried.then(first)
    assert after(**untyped, tried=tried) == DropContainer()
    tried = tried.then(DropContainer())
    assert isinstance(after(**untyped, tried=tried), Retry)
    assert isinstance(after(**REQUEST_FAULTS["500"], tried=Tried(1, container=True)), Retry)


def test_the_number_of_the_attempt_counts_whatever_was_tried() -> None:
    taken = (
        Retry(0, "", False),
        Retry(0, "", True),
        Shorten(1),
        Compact(),
        Repair("text"),
        DropContainer(),
    )
    tried = Tried(container=True)
    for number, advice in enumerate(taken, start=1):
        assert tried.attempt == number
        tried = tried.then(advice)
    assert tried == Tried(1, 1, True, True, True, True, container=False)
    assert tried.then(Fail(StopReason.ERROR, "", "")) == tried


@given(
    st.sampled_from([*REQUEST_FAULTS.values(), *STREAM_FAULTS.values(), *HOPELESS.values()]),
    st.text() | st.sampled_from([*CURABLE, NO_ROOM.format(1, 2), EXPIRED]),
    st.integers(0, 9),
    st.booleans(),
    st.floats(0, 1),
)
def test_every_call_ends_after_a_bounded_number_of_attempts(
    fault: dict[str, Any], message: str, retries: int, container: bool, jitter: float
) -> None:
    tried = Tried(retries, retries, container=container)
    for _ in range(8 + 5 + 4 + 1):
        advice = advise(ModelError(message=message, **fault), tried, jitter)
        if isinstance(advice, Fail):
            return
        if isinstance(advice, Retry):
            assert 0 <= advice.wait_s <= 120
        tried = tried.then(advice)
    pytest.fail("still trying")


NOW = 1_792_000_000.0  # Wed, 14 Oct 2026 17:46:40


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "Wed, 14 Oct 2026 17:48:20 GMT"}, 100.0),
        ({"retry-after": "Wed, 14 Oct 2026 17:48:20 -0000"}, 100.0),
        ({"retry-after": "Mon, 01 Jan 2024 00:00:00 GMT"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
    ],
)
def test_a_wish_to_wait_is_understood_in_all_its_forms(
    headers: dict[str, str], wait_s: float | None
) -> None:
    assert retry_after(headers, NOW) == wait_s


@given(st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms"]), st.text()))
def test_no_header_breaks_anything(headers: dict[str, str]) -> None:
    wait_s = retry_after(headers, NOW)
    assert wait_s is None or wait_s >= 0
