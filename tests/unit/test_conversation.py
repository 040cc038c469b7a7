"""What is said goes on record, and the record gives back what is sent."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from session_worker import compaction
from session_worker.blocks import tool_result
from session_worker.conversation import Conversation
from session_worker.transcript import Transcript, read
from session_worker.turn import AgentTurn

CALL = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}
FRAME = ["Be brief.", []]


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def answer(*content: dict[str, Any], stop: str = "end_turn", **more: Any) -> AgentTurn:
    return AgentTurn.from_response({"content": list(content), "stop_reason": stop, **more})


class Talk:
    """A conversation on a file, and the same as a later worker finds it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = self._open()

    def _open(self, model: str = "m") -> Conversation:
        self.transcript = Transcript.open(self.path)
        return Conversation(self.transcript, list(read(self.path)), model, FRAME, api_blocks=False)

    def again(self, model: str = "m") -> Conversation:
        self.transcript.close()
        return self._open(model)

    def records(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in read(self.path) if record["kind"] == kind]


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    return Talk(tmp_path / "t.jsonl")


def test_neighbours_of_one_role_become_one_message_results_first(talk: Talk) -> None:
    talk.now.add_prompt([text("go")], "r1")
    talk.now.add_answer(answer(CALL), "r1")
    assert talk.now.open_calls() == [CALL]
    talk.now.add_results([tool_result("toolu_1", "cancelled by user", is_error=True)], "/")
    assert talk.now.open_calls() == []
    talk.now.add_prompt([text("next")], "r2")
    sent = talk.now.messages
    assert [m["role"] for m in sent] == ["user", "assistant", "user"]
    assert [b["type"] for b in sent[-1]["content"]] == ["tool_result", "text"]
    assert talk.records("repair") == []
    assert talk.again().messages == sent


def test_what_had_to_be_changed_is_on_record_once_and_sent_so_ever_after(talk: Talk) -> None:
    talk.now.add_prompt([text("go")], "r1")
    talk.now.add_answer(answer(text(" \n"), CALL), "r1")
    talk.now.add_results([tool_result("toolu_1", "ok", is_error=False)], "/")
    assert talk.now.messages[1]["content"] == [CALL]
    assert len(talk.records("repair")) == 1
    sent = talk.now.messages
    assert talk.again().messages == sent
    assert talk.again().messages == sent
    assert len(talk.records("repair")) == 1


def test_a_run_is_held_once_its_prompt_is_and_answered_once_the_model_is_done(talk: Talk) -> None:
    assert not talk.now.holds("r1")
    talk.now.add_prompt([text("go")], "r1")
    assert talk.now.holds("r1")
    assert talk.now.answer() is None
    talk.now.add_answer(answer(text("wait"), stop="pause_turn"), "r1")
    assert talk.again().answer() is None, "a paused answer is none"
    now = talk.again()
    now.add_answer(answer(text("done")), "r1")
    assert now.answer()
    given = talk.again().answer()
    assert given
    assert (given.text, given.provider_stop_reason) == ("done", "end_turn")


def test_calls_cut_off_at_the_end_stay_open_for_the_run_that_goes_on(talk: Talk) -> None:
    talk.now.add_prompt([text("go")], "r1")
    talk.now.add_answer(answer(CALL), "r1")
    assert talk.again().open_calls() == [CALL]


def test_another_models_thinking_is_not_sent_and_its_own_comes_back_unchanged(talk: Talk) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    talk.now.add_prompt([text("go")], "r1")
    talk.now.add_answer(answer(thought, text("ok")), "r1")
    assert talk.again().messages[1]["content"] == [thought, text("ok")]
    assert talk.again("other").messages[1]["content"] == [text("ok")]


def test_the_newest_container_is_known_to_the_next_worker(talk: Talk) -> None:
    talk.now.add_prompt([text("go")], "r1")
    talk.now.add_answer(answer(text("ok"), container={"id": "c1", "expires_at": "x"}), "r1")
    talk.now.add_answer(answer(text("ok")), "r1")
    assert talk.now.container == "c1"
    now = talk.again()
    assert now.container == "c1"
    now.add_prompt([text("more")], "r2")
    now.drop_container("r2")
    assert "expired" in now.messages[-1]["content"][-1]["text"], "the model is told"
    assert now.container is None
    assert talk.again().container is None


def test_a_container_is_over_when_its_newest_time_has_come_unless_code_waits_in_it(
    talk: Talk,
) -> None:
    early, late = (f"2026-01-0{day}T00:00:00Z" for day in (1, 3))
    now = datetime(2026, 1, 2, tzinfo=UTC)
    talk.now.add_prompt([text("go")], "r1")
    assert not talk.now.container_is_over(now)
    for ends, over in ((early, True), (late, False), ("soon", False), (early, True)):
        talk.now.add_answer(answer(text("ok"), container={"id": "c1", "expires_at": ends}), "r1")
        assert talk.now.container_is_over(now) is over
        assert talk.again().container_is_over(now) is over
        talk.now = talk.again()
    code = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {}}
    caller = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
    talk.now.add_answer(answer(code, {**CALL, "caller": caller}), "r1")
    talk.now.add_results([tool_result("toolu_1", "ok", is_error=False)], "/")
    assert talk.now.awaits_code()
    assert not talk.now.container_is_over(now)
    talk.now.drop_container("r1")
    assert not talk.now.awaits_code()
    assert talk.now.messages[-2]["content"][-1] == CALL, "its call is a plain one"


def test_a_container_that_is_lost_while_its_code_is_paused_leaves_a_word_of_the_user_at_the_end(
    talk: Talk,
) -> None:
    code = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {}}
    talk.now.add_prompt([text("go")], "r1")
    talk.now.add_answer(answer(text("run"), code, stop="pause_turn", container={"id": "c"}), "r1")
    talk.now.drop_container("r1")
    assert talk.now.messages[1]["content"] == [text("run")]
    assert talk.now.messages[-1]["role"] == "user"


def test_what_results_keep_out_of_the_context_is_known_until_something_else_is_said(
    talk: Talk,
) -> None:
    code = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {}}
    caller = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
    talk.now.add_prompt([text("go")], "r1")
    assert talk.now.kept_out() == 0
    of_code, direct = {**CALL, "caller": caller}, {**CALL, "id": "toolu_2"}
    talk.now.add_answer(answer(code, of_code, direct, container={"id": "c"}), "r1")
    results = [tool_result(f"toolu_{n}", "x" * 358, is_error=False) for n in (1, 2)]
    talk.now.add_results(results, "/")
    assert talk.now.kept_out() == talk.again().kept_out() == 100, "of what goes to code alone"
    talk.now = talk.again()
    assert talk.now.server_calls() == {"srvtoolu_1"}
    talk.now.add_prompt([text("next")], "r2")
    assert (talk.now.kept_out(), talk.now.server_calls()) == (0, set())


def test_a_cure_is_on_record_and_holds_for_the_next_worker(talk: Talk) -> None:
    talk.now.add_prompt([text("go")], "r1")
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    talk.now.add_answer(answer(thought, text("ok")), "r1")
    talk.now.cure("thinking", (), "r1")
    assert talk.now.messages[1]["content"] == [text("ok")]
    assert talk.again().messages[1]["content"] == [text("ok")]


def test_after_a_compaction_both_workers_send_the_same_and_the_record_keeps_all(talk: Talk) -> None:
    for turn in range(6):
        talk.now.add_prompt([text(f"question {turn} " + "x" * 4000)], f"r{turn}")
        talk.now.add_answer(answer(text(f"answer {turn}")), f"r{turn}")
    messages = talk.now.messages
    at = compaction.border(messages, 3000)
    assert at is not None
    fields = compaction.note("own", [text("In short.")], messages, at, 9000)
    kept = messages[at:]
    talk.now.compact(fields, "r6")
    assert len(talk.now.messages) < len(messages) + 1
    assert talk.now.messages[-len(kept) :][1:] == kept[1:]
    sent = talk.now.messages
    assert talk.again().messages == sent
    assert len(talk.records("message")) == 12
    assert talk.again().holds("r0"), "a compacted run has not become another"


def test_results_belong_to_the_run_that_called_also_when_the_next_one_gives_them(
    talk: Talk,
) -> None:
    talk.now.add_prompt([text("go")], "r1")
    talk.now.add_answer(answer(CALL), "r1")
    talk.again().add_results([tool_result("toolu_1", "interrupted", is_error=True)], "/")
    assert [record["run_id"] for record in talk.records("message")] == ["r1"] * 3
