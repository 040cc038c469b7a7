"""What goes wrong with a model call, seen from outside: retried, cured or told, never in vain.

One session lives through many failures, so each is survived by a history that is still legal.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model import (
    Answer,
    ApiError,
    Fault,
    Reply,
    Streamed,
    text,
    thinking,
)
from tests.support.daemon import Daemon
from tests.support.processes import eventually
from tests.support.scripted import FINE, Scripted, bash, scripted_session

HALF = [thinking("Hm, half a thought"), text("half a sentence"), bash("touch half")]
PAGE = "<html>a proxy page</html>"
TOO_LONG = ApiError(400, "prompt is too long: 1210000 tokens > 1000000 maximum")


def refusal(status: int, code: str) -> ApiError:
    """With a code beside its type, as the API sends some."""
    error = {"type": "rate_limit_error", "message": code, "details": {"error_code": code}}
    return ApiError(status, body={"type": "error", "error": error})


def cut_call(command: str) -> Reply:
    """An answer that ran into max_tokens inside the input of its call."""
    start = {"type": "tool_use", "id": f"toolu_{command[-1]}", "name": "bash", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": f'{{"command": "{command}'}
    return Reply([text("Here it comes."), Streamed(start, [delta])], stop_reason="max_tokens")


BROKEN: list[tuple[Answer, str, bool]] = [
    (Reply(HALF, fault=Fault("cut")), "connection_error", True),
    (Reply(HALF, fault=Fault("reset")), "connection_error", True),
    (Reply(HALF, fault=Fault("eof")), "stream_truncated", True),
    (Reply(HALF, fault=Fault("half_event")), "stream_truncated", True),
    (Reply(HALF, fault=Fault("overloaded")), "overloaded_error", True),
    (Reply(HALF, fault=Fault("cut", after=0)), "connection_error", True),
    (Reply(HALF, fault=Fault("eof", after=0)), "stream_truncated", True),
    (ApiError(200, body=PAGE), "protocol_error", True),
    (ApiError(408, body=PAGE), "http_408", False),
    (ApiError(409, "Conflict"), "api_error", False),
    (ApiError(429, "Slow down", {"retry-after": "0"}), "rate_limit_error", False),
    (refusal(429, "ramp_limit_exceeded"), "rate_limit_error", False),
    (ApiError(500, body=PAGE), "http_500", False),
    (ApiError(529, "Overloaded"), "overloaded_error", False),
]


def test_what_broke_off_is_tried_again_for_all_to_see_and_leaves_nothing_but_its_cost(
    scripted: Scripted, work: Path
) -> None:
    for answer, reason, discard in BROKEN:
        run = scripted.prompt(answer, FINE)
        assert run["result"]["final_text"] == "fine", answer
        (retry,) = scripted.events("retry", run["run_id"])
        assert (retry["attempt"], retry["reason"], retry["discard"]) == (1, reason, discard)
        assert 0 <= retry["wait_s"] <= 0.5
        calls = scripted.events("api_call", run["run_id"])
        began = isinstance(answer, Reply) and answer.fault != Fault(answer.fault.kind, 0)
        assert [c["attempt"] for c in calls] == ([1, 2] if began else [2]), answer
        assert [c["stop_reason"] for c in calls] == [None, "end_turn"][-len(calls) :]
        assert run["result"]["usage"]["output_tokens"] == sum(c["output"] for c in calls)
        assert scripted.bodies[-1] == scripted.bodies[-2], "the same is asked again"
    scripted.completes()
    assert "half" not in json.dumps(scripted.sent)
    assert not (work / "half").exists()


@pytest.mark.parametrize("kind", ["cut", "reset", "half_event", "stall"])
def test_an_answer_is_whole_at_its_last_event_however_its_connection_ends(
    scripted: Scripted, kind: Any
) -> None:
    whole = Reply([text("whole")], fault=Fault(kind, after=99))
    assert scripted.prompt(whole)["result"]["final_text"] == "whole"
    assert scripted.events("retry") == []


def test_what_no_retry_can_change_is_told_at_once_and_the_session_goes_on(
    scripted: Scripted,
) -> None:
    later = {"retry-after": "7200"}
    for answer, kind in (
        (ApiError(401, "invalid x-api-key"), "authentication_error"),
        (ApiError(403, "Your key may not use this model"), "permission_error"),
        (ApiError(404, "model: gone"), "not_found_error"),
        (refusal(429, "enforced_spend_limit_reached"), "rate_limit_error"),
        (refusal(429, "contract_spend_limit_reached"), "rate_limit_error"),
        (refusal(402, "linked_organization_spend_limit_reached"), "rate_limit_error"),
        (ApiError(429, "Slow down", later), "rate_limit_error"),
        (ApiError(400, "an unknown wording"), "invalid_request_error"),
    ):
        run = scripted.prompt(answer)
        assert (run["status"], run["result"]["stop_reason"]) == ("failed", "error"), answer
        assert run["result"]["error"]["type"] == kind
        if answer.headers:
            assert "2.0 h" in run["result"]["error"]["message"]
    assert scripted.events("retry") == []
    scripted.completes()
    assert [m["role"] for m in scripted.sent] == ["user"], "the prompts are kept"


def test_a_server_is_given_the_time_it_asks_for(scripted: Scripted) -> None:
    busy = ApiError(529, "Overloaded", {"retry-after-ms": "600"})
    run = scripted.prompt(busy, FINE)
    (retry,) = scripted.events("retry", run["run_id"])
    assert retry["wait_s"] == 0.6
    assert retry["discard"] is False


WORDINGS = {
    "pairing": [
        "messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: "
        "toolu_1. Each `tool_use` block must have a corresponding `tool_result` block in the next "
        "message.",
        "messages.4.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1. "
        "Each `tool_result` block must have a corresponding `tool_use` block in the previous "
        "message.",
        "`web_search` tool use with id `srvtoolu_1` was found without a corresponding "
        "`web_search_tool_result` block",
        "messages.3.content.1: `tool_use` ids must be unique",
        "container_id is required when there are pending tool uses generated by code execution "
        "with tools.",
    ],
    "images": [
        "messages.0.content.0: At least one of the image dimensions exceed max allowed size for "
        "many-image requests: 2000 pixels",
    ],
    "text": [
        "messages: text content blocks must be non-empty",
        "messages.1: all messages must have non-empty content except for the optional final "
        "assistant message",
    ],
    "thinking": [
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a "
        "different conversation. Remove the block, or set "
        '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".',
        "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant "
        "message cannot be modified. These blocks must remain as they were in the original "
        "response.",
    ],
}


def test_a_refusal_in_known_words_is_cured_once_and_the_request_made_once_more(
    scripted: Scripted,
) -> None:
    scripted.completes(Reply([thinking("hmm"), bash("true")]))
    for what, wordings in WORDINGS.items():
        for wording in wordings:
            run = scripted.prompt(ApiError(400, wording), Reply([text("cured")]))
            assert run["result"]["final_text"] == "cured", wording
            (retry,) = scripted.events("retry", run["run_id"])
            assert (retry["reason"], retry["discard"]) == (f"repaired: {what}", False)
    assert "signature" not in json.dumps(scripted.sent)
    run = scripted.prompt(ApiError(400, wording), ApiError(400, wording))
    assert run["result"]["error"]["type"] == "invalid_request_error", "the second one is final"
    scripted.crash()
    scripted.completes()
    assert "signature" not in json.dumps(scripted.sent), "the cure is on record"


def test_an_answer_without_room_is_made_shorter_and_a_full_context_is_compacted(
    scripted: Scripted,
) -> None:
    no_room = "input length and `max_tokens` exceed context limit: {} + 32000 > 200000, decrease"
    scripted.prompt(ApiError(400, no_room.format(190_000)), FINE)
    assert [body["max_tokens"] for body in scripted.bodies] == [32_000, 10_000]
    run = scripted.prompt(TOO_LONG)
    assert run["result"]["stop_reason"] == "context_limit", "there is nothing to compact"
    for _ in range(3):
        scripted.prompt(FINE, prompt="word " * 3_000)
    run = scripted.prompt(ApiError(400, no_room.format(199_000)), Reply([text("Summary.")]), FINE)
    assert run["result"]["final_text"] == "fine"
    assert "Summary." in scripted.sent[0]["content"][0]["text"]
    assert scripted.bodies[-1]["max_tokens"] == 32_000
    reasons = [event["reason"] for event in scripted.events("retry")]
    assert reasons == ["less room for the answer", "the context is full", "the context is full"]
    for _ in range(3):
        scripted.prompt(FINE, prompt="word " * 3_000)
    run = scripted.prompt(TOO_LONG, Reply([text("Summary.")]), TOO_LONG)
    assert run["result"]["stop_reason"] == "context_limit", "compacted once, not twice"
    scripted.completes()


def test_a_call_cut_off_at_max_tokens_gets_twice_the_room_once_or_is_never_run(
    scripted: Scripted, work: Path
) -> None:
    run = scripted.prompt(cut_call("touch a"), Reply([bash("touch b")]), FINE)
    assert run["result"]["final_text"] == "fine"
    assert [body["max_tokens"] for body in scripted.bodies] == [32_000, 64_000, 32_000]
    (retry,) = scripted.events("retry")
    assert retry["discard"] is True
    assert [c["stop_reason"] for c in scripted.events("api_call")][:2] == ["max_tokens", "tool_use"]
    run = scripted.prompt(cut_call("touch c"), cut_call("touch d"))
    assert (run["result"]["stop_reason"], run["result"]["tool_calls"]) == ("max_tokens", 0)
    scripted.completes()
    assert "truncated" in scripted.sent[-1]["content"][0]["content"]
    assert [path.name for path in work.iterdir()] == ["b"]


def test_where_more_room_cannot_be_had_the_cut_answer_stands(daemon: Daemon, work: Path) -> None:
    no_more = ApiError(400, "max_tokens: 64000 > 32000, which is the maximum allowed")
    with scripted_session(daemon, work, model="somebody-elses") as scripted:
        run = scripted.prompt(cut_call("touch a"), no_more)
        assert run["result"]["stop_reason"] == "max_tokens"
        assert run["result"]["final_text"] == "Here it comes."
        scripted.completes()
    assert list(work.iterdir()) == []


def test_a_run_ends_when_the_model_makes_the_same_call_again_and_again(scripted: Scripted) -> None:
    run = scripted.prompt(*[Reply([bash("true")])] * 10)
    assert (run["result"]["stop_reason"], run["result"]["tool_calls"]) == ("loop_detected", 9)
    scripted.completes()
    closing = scripted.sent[-1]["content"]
    assert "again and again" in closing[0]["content"]
    assert "Call number 9 in a row" in scripted.sent[-3]["content"][0]["content"]


def test_a_session_stops_at_its_budget(daemon: Daemon, work: Path) -> None:
    with scripted_session(daemon, work, limits={"tokens": 1}) as scripted:
        assert scripted.prompt(Reply([bash("touch ran")]))["result"]["stop_reason"] == "budget"
        assert scripted.prompt()["result"]["stop_reason"] == "budget"
    assert (work / "ran").exists()


def test_a_worker_that_dies_at_any_moment_of_a_call_leaves_a_session_that_goes_on(
    scripted: Scripted, work: Path
) -> None:
    scripted.completes(Reply([thinking("Signed with all before it"), bash("true")]))
    wait = ApiError(529, "Overloaded", {"retry-after": "100"})
    silent = Reply([text("never")], fault=Fault("stall", after=0))
    in_a_call = Reply([thinking("Hm"), bash("touch half")], fault=Fault("stall", after=9))
    for answer in (wait, silent, in_a_call):
        asked = len(scripted.bodies)
        run_id = scripted.start(answer)
        scripted.was_asked(asked + 1)
        if answer is wait:
            eventually(lambda r=run_id: scripted.events("retry", r), "it waits")
        scripted.answers.append(FINE)
        scripted.crash()
        assert scripted.ended(run_id)["result"]["final_text"] == "fine"
        assert scripted.bodies[asked] == scripted.bodies[asked + 1]
    assert "signature" in json.dumps(scripted.sent)
    assert not (work / "half").exists()
