"""JSON-RPC messages in, and the answers that runs become."""

from __future__ import annotations

from typing import Any

import pytest

from session_worker.http.acp_c import jsonrpc
from session_worker.http.acp_c.capabilities import takes_notices
from session_worker.http.acp_c.jsonrpc import Answer, Notification, Request, RpcError, parse
from session_worker.http.acp_c.methods import Initialize, OpenSession, checked, prompt_answer
from session_worker.turn import StopReason


def test_messages_are_told_apart() -> None:
    assert parse('{"jsonrpc":"2.0","id":1,"method":"m"}') == Request(1, "m", {})
    assert parse('{"jsonrpc":"2.0","id":null,"method":"m"}') == Request(None, "m", {})
    assert parse('{"jsonrpc":"2.0","method":"m","params":{"a":1}}') == Notification("m", {"a": 1})
    assert parse('{"jsonrpc":"2.0","id":"x","result":{}}') == Answer("x", {})
    assert parse('{"jsonrpc":"2.0","id":"x","error":{"code":1}}') == Answer("x", None, {"code": 1})


@pytest.mark.parametrize(
    ("text", "code", "request_id"),
    [
        ("", jsonrpc.PARSE_ERROR, None),
        (b"\xff", jsonrpc.PARSE_ERROR, None),
        ("[]", jsonrpc.INVALID_REQUEST, None),
        ("3", jsonrpc.INVALID_REQUEST, None),
        ('{"id":1,"method":"m"}', jsonrpc.INVALID_REQUEST, 1),
        ('{"jsonrpc":"2.0","id":1}', jsonrpc.INVALID_REQUEST, 1),
        ('{"jsonrpc":"2.0","id":1,"method":7}', jsonrpc.INVALID_REQUEST, 1),
        ('{"jsonrpc":"2.0","id":true,"method":"m"}', jsonrpc.INVALID_REQUEST, None),
        ('{"jsonrpc":"2.0","id":1.5,"method":"m"}', jsonrpc.INVALID_REQUEST, None),
        ('{"jsonrpc":"2.0","id":1,"method":"m","params":[]}', jsonrpc.INVALID_PARAMS, 1),
    ],
)
def test_what_is_no_message_is_refused_under_its_id_if_it_has_one(
    text: str | bytes, code: int, request_id: Any
) -> None:
    with pytest.raises(RpcError) as refused:
        parse(text)
    assert (refused.value.code, refused.value.request_id) == (code, request_id)


def test_params_of_later_versions_are_taken_for_what_is_known_of_them() -> None:
    params = {"protocolVersion": 2, "info": {"name": "x"}, "capabilities": {}}
    assert checked(Initialize, params).clientCapabilities is None
    with pytest.raises(RpcError):
        checked(OpenSession, {"sessionId": "s", "cwd": "relative"})


def test_notices_are_taken_by_those_who_say_so() -> None:
    assert takes_notices({"session": {"notices": {}}})
    for other in ({}, {"session": None}, {"session": {"notices": None}}, {"session": []}):
        assert not takes_notices(other)


@pytest.mark.parametrize("reason", StopReason)
def test_every_end_of_a_run_is_an_answer(reason: StopReason) -> None:
    answer = prompt_answer(5, "r", {"stop_reason": reason, "error": None})
    wanted = {
        StopReason.FINAL_ANSWER: "end_turn",
        StopReason.MAX_TOKENS: "max_tokens",
        StopReason.CONTEXT_LIMIT: "max_tokens",
        StopReason.MAX_TURNS: "max_turn_requests",
        StopReason.LOOP_DETECTED: "max_turn_requests",
        StopReason.CANCELLED: "cancelled",
        StopReason.REFUSAL: "refusal",
    }.get(reason)
    assert answer["id"] == 5
    assert answer.get("result", {}).get("stopReason") == wanted
    assert ("error" in answer) == (wanted is None)


def test_a_run_that_failed_is_an_error_with_its_words() -> None:
    failure = {"type": "budget", "message": "it is used up"}
    error = prompt_answer(5, "r", {"stop_reason": "context_limit", "error": failure})["error"]
    assert (error["code"], error["message"]) == (jsonrpc.INTERNAL_ERROR, "it is used up")
    assert error["data"]["type"] == "budget"
    assert "error" in prompt_answer(5, "r", {})
