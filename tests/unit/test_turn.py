"""The continuation rule, whole: every stop reason, with and without calls."""

from __future__ import annotations

from typing import Any

import pytest

from session_worker.turn import AgentTurn, Step, StopReason, next_step

CALL = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}
SERVER_CALL = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
TEXT = {"type": "text", "text": "words"}


def turn(stop_reason: str | None, *content: dict[str, Any]) -> AgentTurn:
    return AgentTurn.from_response({"content": list(content), "stop_reason": stop_reason})


WITHOUT_CALLS = {
    "end_turn": (Step.FINISH, StopReason.FINAL_ANSWER),
    "stop_sequence": (Step.FINISH, StopReason.FINAL_ANSWER),
    "tool_use": (Step.FINISH, StopReason.FINAL_ANSWER),
    "max_tokens": (Step.FINISH, StopReason.MAX_TOKENS),
    "model_context_window_exceeded": (Step.FINISH, StopReason.CONTEXT_LIMIT),
    "pause_turn": (Step.RESEND, None),
    "compaction": (Step.RESEND, None),
    "refusal": (Step.DROP, StopReason.REFUSAL),
    "brand_new": (Step.FINISH, StopReason.FINAL_ANSWER),
    None: (Step.FINISH, StopReason.FINAL_ANSWER),
}
WITH_CALLS = {
    "end_turn": (Step.RUN_CALLS, None),
    "stop_sequence": (Step.RUN_CALLS, None),
    "tool_use": (Step.RUN_CALLS, None),
    "max_tokens": (Step.REFUSE_CALLS, StopReason.MAX_TOKENS),
    "model_context_window_exceeded": (Step.REFUSE_CALLS, StopReason.CONTEXT_LIMIT),
    "pause_turn": (Step.RUN_CALLS, None),
    "compaction": (Step.RUN_CALLS, None),
    "refusal": (Step.DROP, StopReason.REFUSAL),
    "brand_new": (Step.RUN_CALLS, None),
    None: (Step.RUN_CALLS, None),
}


@pytest.mark.parametrize(("stop_reason", "expected"), list(WITHOUT_CALLS.items()))
def test_without_calls_the_stop_reason_explains(stop_reason: str | None, expected: Any) -> None:
    assert next_step(turn(stop_reason, TEXT)) == expected
    assert next_step(turn(stop_reason)) == expected
    assert next_step(turn(stop_reason, SERVER_CALL)) == expected


@pytest.mark.parametrize(("stop_reason", "expected"), list(WITH_CALLS.items()))
def test_with_calls_the_blocks_decide(stop_reason: str | None, expected: Any) -> None:
    assert next_step(turn(stop_reason, TEXT, CALL)) == expected
    assert next_step(turn(stop_reason, CALL, SERVER_CALL)) == expected


def test_a_response_is_normalised_once_and_its_content_kept_verbatim() -> None:
    novel = {"type": "brand_new", "x": 1}
    content = [TEXT, novel, CALL, {"type": "text", "text": "!"}]
    response = {"content": content, "stop_reason": "tool_use", "container": {"id": "c"}}
    made = AgentTurn.from_response(response)
    assert made.content == content
    assert (made.text, made.tool_calls) == ("words!", [CALL])
    assert (made.provider_stop_reason, made.container, made.usage) == ("tool_use", {"id": "c"}, {})
