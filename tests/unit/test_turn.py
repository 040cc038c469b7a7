"""The continuation rule, whole: every stop reason, with and without calls."""

from __future__ import annotations

from typing import Any

import pytest

from session_worker.assembler import INVALID_JSON
from session_worker.turn import AgentTurn, Step, StopReason, next_step

Block = dict[str, Any]

TEXT: Block = {"type": "text", "text": "words"}
CALL: Block = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}}
CUT: Block = {**CALL, "id": "toolu_2", "input": {INVALID_JSON: '{"comm'}}
OF_CODE: Block = {**CALL, "caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}}
SERVER_CALL: Block = {**CALL, "type": "server_tool_use", "id": "srvtoolu_1"}
MCP_CALL: Block = {**CALL, "type": "mcp_tool_use", "id": "mcptoolu_1"}
SERVER_RESULT: Block = {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_1"}

RUN = (Step.RUN_CALLS, None)
RESEND = (Step.RESEND, None)
DROP = (Step.DROP, StopReason.REFUSAL)
ANSWER = (Step.FINISH, StopReason.FINAL_ANSWER)

# stop reason: what follows without client calls, and with them
RULE: dict[str | None, tuple[Any, Any]] = {
    "end_turn": (ANSWER, RUN),
    "stop_sequence": (ANSWER, RUN),
    "tool_use": (ANSWER, RUN),
    "pause_turn": (RESEND, RUN),
    "compaction": (RESEND, RUN),
    "max_tokens": (
        (Step.FINISH, StopReason.MAX_TOKENS),
        (Step.REFUSE_CALLS, StopReason.MAX_TOKENS),
    ),
    "model_context_window_exceeded": (
        (Step.FINISH, StopReason.CONTEXT_LIMIT),
        (Step.REFUSE_CALLS, StopReason.CONTEXT_LIMIT),
    ),
    "refusal": (DROP, DROP),
    "something_new": (ANSWER, RUN),
    "": (ANSWER, RUN),
    None: (ANSWER, RUN),
}
TRUNCATING = ("max_tokens", "model_context_window_exceeded")
SERVER_BLOCKS = ([], [SERVER_CALL], [SERVER_CALL, SERVER_RESULT, MCP_CALL])

with_every_stop_reason = pytest.mark.parametrize("stop_reason", list(RULE))
with_and_without_server_blocks = pytest.mark.parametrize("server_blocks", SERVER_BLOCKS)


def turn(stop_reason: str | None, *content: Block) -> AgentTurn:
    return AgentTurn.from_response({"content": list(content), "stop_reason": stop_reason})


@with_every_stop_reason
@with_and_without_server_blocks
@pytest.mark.parametrize("words", [[], [TEXT]])
def test_without_calls_the_stop_reason_explains(
    stop_reason: str | None, server_blocks: list[Block], words: list[Block]
) -> None:
    made = turn(stop_reason, *words, *server_blocks)
    assert next_step(made) == RULE[stop_reason][0]
    assert not made.cut_call


@with_every_stop_reason
@with_and_without_server_blocks
@pytest.mark.parametrize("calls", [[CALL], [CALL, {**CALL, "id": "toolu_3"}], [OF_CODE]])
def test_with_calls_the_blocks_decide(
    stop_reason: str | None, server_blocks: list[Block], calls: list[Block]
) -> None:
    for content in ([TEXT, *server_blocks, *calls], [*calls, *server_blocks, TEXT]):
        made = turn(stop_reason, *content)
        assert next_step(made) == RULE[stop_reason][1]
        assert made.tool_calls == calls
        assert not made.cut_call


@with_every_stop_reason
@with_and_without_server_blocks
@pytest.mark.parametrize("cut", [CUT, {**CUT, "input": {}}, {**CUT, "input": {INVALID_JSON: ""}}])
def test_a_call_is_cut_where_the_provider_ran_out_of_room_inside_it(
    stop_reason: str | None, server_blocks: list[Block], cut: Block
) -> None:
    made = turn(stop_reason, *server_blocks, CALL, cut)
    assert next_step(made) == RULE[stop_reason][1]
    assert made.cut_call == (stop_reason in TRUNCATING)
    assert not turn(stop_reason, cut, TEXT).cut_call
    assert not turn(stop_reason, {**cut, "type": "server_tool_use"}).cut_call


def test_a_call_that_code_on_the_server_makes_is_ours_to_run() -> None:
    for stop_reason in ("pause_turn", "tool_use"):  # both readings of the API
        made = turn(stop_reason, SERVER_CALL, OF_CODE)
        assert made.tool_calls == [OF_CODE]
        assert next_step(made) == RUN


def test_a_response_is_normalised_once_and_its_content_kept_verbatim() -> None:
    novel = {"type": "brand_new", "x": 1}
    content = [TEXT, novel, SERVER_CALL, CALL, MCP_CALL, {"type": "text", "text": "!"}]
    response = {
        "content": content,
        "stop_reason": "tool_use",
        "usage": {"output_tokens": 1},
        "container": {"id": "c", "expires_at": "soon"},
    }
    made = AgentTurn.from_response(response)
    assert made.content == content
    assert (made.text, made.tool_calls) == ("words!", [CALL])
    assert made.provider_stop_reason == "tool_use"
    assert made.usage == response["usage"]
    assert made.container == response["container"]


def test_a_response_without_metadata_has_none() -> None:
    made = AgentTurn.from_response({"content": []})
    assert (made.text, made.tool_calls, made.usage) == ("", [], {})
    assert made.provider_stop_reason is None
    assert made.container is None


def test_the_reasons_to_stop_are_those_of_the_design() -> None:
    assert {str(reason) for reason in StopReason} == {
        "final_answer",
        "max_tokens",
        "max_turns",
        "cancelled",
        "refusal",
        "context_limit",
        "budget",
        "loop_detected",
        "error",
    }
