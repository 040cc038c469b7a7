"""Whatever a transcript has come to hold, the API accepts what is made of it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from session_worker.blocks import tool_result
from session_worker.demo_model.conversation import segments, signature
from session_worker.history import INTERRUPTED, History
from tests.support.conversations import (
    FRAME,
    MODEL,
    Block,
    Message,
    Recorded,
    Talk,
    Tape,
    assistant,
    call,
    code,
    corrupt,
    fed,
    found,
    from_code,
    image,
    ran,
    refusal,
    request,
    result,
    search,
    text,
    thinks,
    thought,
    user,
)

CASES = int(os.environ.get("HISTORY_CASES", "600"))
"""Corrupted conversations that are tried; HISTORY_CASES=20000 is for a change of the repairs."""
quiet = settings(
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
thoroughly = settings(quiet, max_examples=CASES)
often = settings(quiet, max_examples=CASES // 3)
tapes = st.binary(min_size=40, max_size=120).map(Tape)
damage = st.lists(st.binary(min_size=4, max_size=12).map(Tape), min_size=1, max_size=8)


def interrupted(call_id: str) -> Block:
    return tool_result(call_id, INTERRUPTED, is_error=True)


def loaded(records: list[Recorded]) -> tuple[History, list[str]]:
    history = History(MODEL, FRAME)
    changes: list[str] = []
    for record in records:
        changes += history.add(record.message, record.written_by, record.seal)
    return history, changes


def sendable(history: History) -> list[Message]:
    """The messages as the loop sends them next: calls answered, and a prompt unless an answer
    was paused."""
    history.close()
    last = history.messages[-1:]
    if not last or (last[0]["role"] == "assistant" and not waiting(last)):
        history.add(user(text("go on")))
    return history.messages


def waiting(messages: list[Message]) -> list[str]:
    """The server tool calls without a result."""
    blocks = [block for message in messages for block in message["content"]]
    ended = {block.get("tool_use_id") for block in blocks}
    calls = [
        block["id"] for block in blocks if block["type"] in ("server_tool_use", "mcp_tool_use")
    ]
    return [call_id for call_id in calls if call_id not in ended]


@often
@given(tapes)
def test_a_sound_conversation_stays_as_it_is_and_only_grows(tape: Tape) -> None:
    talk = Talk(tape).run()
    merged: list[Message] = []
    for record in talk.records:
        role, content = record.message["role"], record.message["content"]
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += content
        else:
            merged.append({"role": role, "content": [*content]})
    assert talk.changes == []
    assert talk.history.messages == merged


@often
@given(tapes)
def test_whatever_a_model_sends_is_accepted_again_and_a_reload_changes_nothing(tape: Tape) -> None:
    talk = Talk(tape, habits=True).run()
    history, changes = loaded(talk.records)
    assert history.messages == talk.history.messages
    assert changes == talk.changes
    assert refusal(sendable(history)) is None


def test_a_block_of_unknown_type_that_names_a_call_is_not_its_result() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}
    odd = {"type": "odd", "tool_use_id": "toolu_1", "content": "out"}
    said = [user(text("go")), {"role": "assistant", "content": [call]}, user(odd)]
    history, _ = fed(*said)
    assert history.open_calls() == [call]
    assert refusal(sendable(history)) is None


@thoroughly
@given(tapes, damage)
def test_whatever_happens_to_a_record_the_api_accepts_what_is_left(
    tape: Tape, damages: list[Tape]
) -> None:
    records = Talk(tape, habits=tape.below(2) == 1, checked=False).run().records
    for one in damages:
        records = corrupt(records, one)
    before = json.dumps([record.message for record in records])
    history, _ = loaded(records)
    assert refusal(sendable(history)) is None
    assert json.dumps([record.message for record in records]) == before

    again, changes = fed(*history.messages)
    assert changes == []
    assert again.messages == history.messages
    assert _goes_on(history)


@often
@given(tapes, damage)
def test_an_old_record_without_seals_needs_at_most_the_remedy_for_signatures(
    tape: Tape, damages: list[Tape]
) -> None:
    records = Talk(tape, checked=False).run().records
    for one in damages:
        records = corrupt(records, one)
    history, _ = loaded([Recorded(record.message) for record in records])
    if (error := refusal(sendable(history))) is not None:
        assert "`thinking`" in error.message, error.message
        assert history.strip_thinking()
    assert refusal(history.messages) is None


def _goes_on(history: History) -> bool:
    """Whether a new thought is kept when the next prompt comes."""
    digest = segments(request(history.messages))[-1].digest
    new = thought("hm", signature=signature(digest, "hm"))
    ends = [found(call_id) for call_id in waiting(history.messages)]
    answer = assistant(*ends, new, text("so"))
    history.add(answer, MODEL, history.seal(answer))
    history.add(user(text("and?")))
    kept = any(block == new for m in history.messages for block in m["content"])
    return kept and refusal(history.messages) is None


GO = user(text("go"))
NEXT = user(text("next"))
ASKS = assistant(call("a"), call("b"))


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        (
            [GO, ASKS, user(result("a"), result("b")), NEXT],
            [GO, ASKS, user(result("a"), result("b"), text("next"))],
        ),
        ([{"role": "user", "content": "go"}], [GO]),
        (
            [GO, assistant(search("s")), assistant(found("s"), text("so")), NEXT],
            [GO, assistant(search("s"), found("s"), text("so")), NEXT],
        ),
        ([GO, assistant(search("s"))], [GO, assistant(search("s"))]),
        (
            [GO, assistant(code("s"), from_code("a", "s")), user(result("a"))],
            [GO, assistant(code("s"), from_code("a", "s")), user(result("a"))],
        ),
        ([user(text("go"), {"type": "brand_new", "x": 1})],
         [user(text("go"), {"type": "brand_new", "x": 1})]),
    ],
)  # fmt: skip
def test_what_the_api_accepts_is_merged_and_left_as_it_is(
    said: list[Any], sent: list[Message]
) -> None:
    history, changes = fed(*said)
    assert history.messages == sent
    assert changes + history.close() == []
    assert refusal(sent) is None


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ([GO, ASKS], [GO, ASKS, user(interrupted("a"), interrupted("b"))]),
        (
            [GO, ASKS, user(text("hm"), result("b")), user(result("a"))],
            [GO, ASKS, user(result("a"), result("b"), text("hm"))],
        ),
        (
            [GO, ASKS, user(result("b")), assistant(text("so"))],
            [GO, ASKS, user(interrupted("a"), result("b")), assistant(text("so"))],
        ),
        ([GO, user(result("lost"))], [GO]),
        ([GO, assistant(call("a")), user(result("a"), result("a", "again"))],
         [GO, assistant(call("a")), user(result("a"))]),
        ([GO, assistant(text("hi")), user(result("a"), text("next"))],
         [GO, assistant(text("hi")), NEXT]),
        (
            [GO, assistant(call("a")), user(result("a", "1")), assistant(call("a")),
             user(result("a", "2"))],
            [GO, assistant(call("a")), user(result("a", "1")), assistant(call("a-2")),
             user(result("a-2", "2"))],
        ),
        (
            [GO, assistant(call("a"), call("a")), user(result("a", "1"), result("a", "2"))],
            [GO, assistant(call("a"), call("a-2")), user(result("a", "1"), result("a-2", "2"))],
        ),
        ([GO, assistant(text(" \n")), NEXT], [user(text("go"), text("next"))]),
        ([GO, assistant(text(""), call("a")), user(result("a", [text(""), text("x")]))],
         [GO, assistant(call("a")), user(result("a", [text("x")]))]),
        ([user(text("a\ud83d")), assistant(call("a", input={"\ud83d": ["\ud83d\ude00"]})),
          user(result("a"))],
         [user(text("a\ufffd")), assistant(call("a", input={"\ufffd": ["😀"]})),
          user(result("a"))]),
        ([GO, assistant(thought("\ud83d"), text("so")), NEXT], [GO, assistant(text("so")), NEXT]),
        ([GO, assistant(from_code("a", "s")), user(result("a"))],
         [GO, assistant(call("a")), user(result("a"))]),
        ([GO, assistant(), NEXT], [user(text("go"), text("next"))]),
        (
            [assistant(text("hi")), NEXT],
            [user(text("[the start of this conversation was lost]")), assistant(text("hi")), NEXT],
        ),
        ([GO, assistant(search("s"), text("so")), NEXT], [GO, assistant(text("so")), NEXT]),
        ([GO, assistant(text("so"), found("s")), NEXT], [GO, assistant(text("so")), NEXT]),
        (
            [GO, assistant(search("s"), found("s")), NEXT, assistant(search("s"), found("s"))],
            [GO, assistant(search("s"), found("s")), NEXT],
        ),
        (
            [GO, assistant(code("s"), from_code("a", "s")), user(result("a")),
             assistant(from_code("b", "s")), NEXT],
            [GO, assistant(call("a")), user(result("a")), assistant(call("b")),
             user(interrupted("b"), text("next"))],
        ),
        (
            [GO, assistant(code("s"), from_code("a", "s")), user(result("a", [image()])),
             assistant(ran("s"))],
            [GO, assistant(code("s"), from_code("a", "s")),
             user(result("a", [text("[image left out: text only]")])), assistant(ran("s"))],
        ),
        (
            [GO, ASKS, {"role": "system", "content": "remember"}, NEXT],
            [GO, ASKS, user(interrupted("a"), interrupted("b")),
             {"role": "system", "content": [text("remember")]}, NEXT],
        ),
        ([user(text("go") | {"cache_control": {"type": "ephemeral"}})], [GO]),
        ([user(image(media_type="image/gif"))], [user(image())]),
        ([GO, user(image(8001, 1))],
         [user(text("go"), text("[image left out: 8001 by 1 pixels, more than 8000]"))]),
        ([user(text("go"), call("a"), found("s"))], [GO]),
        ([GO, assistant(text("hi"), image(), result("a")), NEXT],
         [GO, assistant(text("hi")), NEXT]),
        ([GO, None, 7, {"role": "tool", "content": "x"}, user(None, 7, {"type": "text"})], [GO]),
        ([GO, {"role": "user"}, {"role": "user", "content": 7}], [GO]),
        ([GO, assistant(call("a")), user(result("a", 7), text("next"))],
         [GO, assistant(call("a")), user(interrupted("a"), text("next"))]),
        ([GO, assistant(call("a")), user(result("a", [image(), text("x")], is_error=True))],
         [GO, assistant(call("a")),
          user(result("a", [text("[image left out: text only]"), text("x")], is_error=True))]),
    ],
)  # fmt: skip
def test_what_the_api_would_refuse_is_put_right(said: list[Any], sent: list[Message]) -> None:
    history, changes = fed(*said)
    changes += history.close()
    assert history.messages == sent
    assert changes
    assert refusal(sendable(history)) is None


def test_thinking_without_a_signature_is_left_out() -> None:
    unsigned = {"type": "thinking", "thinking": "x"}
    history, changes = fed(GO, assistant(unsigned, thought(signature=""), text("so")))
    assert history.messages == [GO, assistant(text("so"))]
    assert len(changes) == 2


def test_thinking_of_another_model_is_left_out() -> None:
    history, _ = fed(GO)
    answer = assistant(thought(), {"type": "redacted_thinking", "data": "x"}, text("so"))
    assert history.add(answer, "another") == ["thinking left out: another model's, another"]
    assert history.messages == [GO, assistant(text("so"))]


def test_a_thought_behind_a_blank_of_the_model_is_good_for_the_form_without_it() -> None:
    said = (
        assistant(text(" "), thought("1"), call("a")),
        user(result("a")),
        assistant(thought("2"), text("so")),
    )
    history, changes = fed(GO, *said)
    assert changes == ["content.0: blank text left out"]
    assert thinks(history.messages) == 2


def test_without_a_seal_visible_damage_ends_all_thinking_behind_it() -> None:
    history, _ = fed(GO, assistant(thought("1"), text("so")))
    history.add(user(result("lost"), text("go on")))
    history.add(assistant(thought("2"), text("so")))
    assert [thinks([message]) for message in history.messages] == [0, 1, 0, 0]


def test_a_seal_tells_that_something_before_was_lost_or_the_frame_has_changed() -> None:
    talk = Talk(Tape(b""))
    talk.user(text("go"))
    talk.user(text("on"))
    talk.assistant(thought(), text("so"))
    assert thinks(loaded(talk.records)[0].messages) == 1
    assert thinks(loaded(talk.records[1:])[0].messages) == 0
    other = History(MODEL, "another system prompt")
    for record in talk.records:
        other.add(record.message, record.written_by, record.seal)
    assert thinks(other.messages) == 0


def test_thinking_that_a_bad_seal_takes_away_is_missed_by_all_that_was_thought_later() -> None:
    talk = Talk(Tape(b""))
    for _ in range(2):
        talk.user(text("go"))
        talk.assistant(thought(), text("so"))
    assert thinks(loaded(talk.records)[0].messages) == 2
    talk.records[1] = replace(talk.records[1], seal="bad")
    assert thinks(loaded(talk.records)[0].messages) == 0


def test_giving_up_a_server_tool_ends_the_thinking_behind_it() -> None:
    history, _ = fed(GO, assistant(thought("1"), search("s"), thought("2"), text("so")))
    assert history.add(NEXT) == ["given up what server tools have not ended: s"]
    assert history.messages == [GO, assistant(thought("1"), text("so")), NEXT]
    history, _ = fed(GO, assistant(thought("1"), search("s")), NEXT)
    assert history.messages == [user(text("go"), text("next"))]


def test_open_calls_have_the_ids_to_answer_to() -> None:
    history, _ = fed(GO, assistant(call("a")), user(result("a")), assistant(call("a"), call("b")))
    history.add(user(result("b")))
    assert history.open_calls() == [call("a-2")]
    history.add(user(result("a-2", "new")))
    assert history.open_calls() == []
    assert history.messages[-1] == user(result("a-2", "new"), result("b"))


def test_among_more_than_twenty_images_the_large_ones_go_and_the_thinking_behind_them() -> None:
    history, changes = fed(user(image(2001, 9), *[image()] * 19), assistant(thought(), text("so")))
    assert changes == []
    assert history.add(user(image(9, 2001))) == ["images left out that are too large among so many"]
    assert thinks(history.messages) == 0
    assert [m["content"][0]["type"] for m in history.messages] == ["text", "text", "text"]
    assert refusal(history.messages) is None
    assert history.add(user(*[image()] * 30)) == []
