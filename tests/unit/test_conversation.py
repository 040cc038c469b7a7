"""The history as the API accepts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from session_worker.conversation import Conversation, tool_result
from session_worker.transcript import Transcript, history, read

CALL = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def conversation(tmp_path: Path) -> Conversation:
    return Conversation(Transcript.open(tmp_path / "t.jsonl"), [])


def test_neighbours_of_one_role_become_one_message_results_first(tmp_path: Path) -> None:
    talk = conversation(tmp_path)
    talk.add_prompt([text("go")], "r1")
    talk.add_assistant([CALL], "r1")
    assert talk.open_calls() == [CALL]
    talk.add_results([tool_result("toolu_1", "cancelled by user", is_error=True)], "r1", "/")
    assert talk.open_calls() == []
    talk.add_prompt([text("next")], "r2")
    assert [m["role"] for m in talk.for_request()] == ["user", "assistant", "user"]
    assert [b["type"] for b in talk.for_request()[-1]["content"]] == ["tool_result", "text"]


def test_blank_text_and_empty_messages_are_not_sent(tmp_path: Path) -> None:
    talk = conversation(tmp_path)
    talk.add_prompt([text("go")], "r1")
    talk.add_assistant([text(" \n"), CALL], "r1")
    talk.add_results([tool_result("toolu_1", "ok", is_error=False)], "r1", "/")
    talk.add_assistant([text("")], "r1")
    talk.add_prompt([text("next")], "r2")
    assert talk.for_request()[1]["content"] == [CALL]
    assert [m["role"] for m in talk.for_request()] == ["user", "assistant", "user"]


def test_building_a_request_changes_nothing_that_was_said(tmp_path: Path) -> None:
    talk = conversation(tmp_path)
    talk.add_prompt([text("one")], "r1")
    first = talk.for_request()
    talk.add_prompt([text("two")], "r2")
    assert talk.for_request() == talk.for_request()
    assert first == [{"role": "user", "content": [text("one")]}]


def test_the_transcript_gives_the_same_history_back(tmp_path: Path) -> None:
    talk = conversation(tmp_path)
    talk.add_prompt([text("go")], "r1")
    talk.add_assistant([text("ok")], "r1")
    assert history(read(tmp_path / "t.jsonl")) == talk.for_request()
