"""Calls that the provider runs, told as an answer comes: each begun once, and none left at work."""

from __future__ import annotations

from typing import Any

from session_worker.assembler import Assembler
from session_worker.demo_model.reply import Json, Reply, text
from session_worker.demo_model.wire import stream_events
from session_worker.server_calls import ServerCalls

CODE: Json = {
    "type": "server_tool_use",
    "id": "s1",
    "name": "code_execution",
    "input": {"code": "print(1)"},
}
RAN: Json = {
    "type": "code_execution_tool_result",
    "tool_use_id": "s1",
    "content": {"stdout": "1\n", "stderr": "", "return_code": 0},
}


class Told:
    """What clients were told of one attempt; as many of its events came as are asked for."""

    def __init__(self, *content: Json, events: int | None = None) -> None:
        self.updates: list[Any] = []
        self.calls = ServerCalls(self.updates.append)
        assembler = Assembler()
        for event in stream_events(Reply(list(content)), "m", "m", {})[:events]:
            assembler.feed(event)
            if event["type"] == "content_block_start":
                self.calls.start(event["index"], assembler.newest)
            if event["type"] == "content_block_stop":
                self.calls.stop(event["index"])

    def states(self) -> list[tuple[str, str]]:
        return [(update["toolCallId"], update["status"]) for update in self.updates]


def test_a_call_is_told_once_its_input_is_whole_and_its_result_when_it_comes() -> None:
    told = Told(text("so"), CODE, RAN)
    assert told.states() == [("s1", "in_progress"), ("s1", "completed")]
    assert told.updates[0]["title"] == "print(1)"
    assert told.updates[1]["content"][0]["content"]["text"] == "1"
    told.calls.give_up("why")
    assert len(told.updates) == 2, "it has ended"


def test_a_call_of_an_answer_that_does_not_count_is_not_left_at_work() -> None:
    told = Told(CODE, {**CODE, "id": "s2"}, text("so"))
    told.calls.give_up("the answer broke off")
    assert told.states()[2:] == [("s1", "failed"), ("s2", "failed")]
    assert told.updates[-1]["content"][0]["content"]["text"] == "given up: the answer broke off"
    cut = Told(CODE, events=4)
    cut.calls.give_up("why")
    assert cut.updates == [], "nobody was told of it"


def test_a_result_of_a_call_of_an_earlier_answer_is_told_by_its_id() -> None:
    assert Told(RAN, text("so")).states() == [("s1", "completed")]


def test_a_block_without_an_end_is_told_with_the_end_of_its_answer() -> None:
    told = Told(CODE, events=-3)
    assert told.states() == []
    told.calls.stop_all()
    assert told.states() == [("s1", "in_progress")]


def test_malformed_ones_are_told_to_nobody() -> None:
    told = Told({**CODE, "id": 7}, {**CODE, "name": None}, {**RAN, "tool_use_id": 7})
    assert told.states() == []
