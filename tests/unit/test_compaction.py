"""A compacted conversation is accepted, keeps its newest turns, and is the same after a restart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from session_worker import compaction
from session_worker.blocks import Message
from session_worker.compaction import Attempts, CompactionFailed, border, is_due
from session_worker.demo_model.conversation import segments, signature
from session_worker.demo_model.rules import check_request
from session_worker.history import History
from sidecar.protocol import bounds

HEADERS = {"authorization": "Bearer k", "anthropic-version": "2026-10-21"}
FIXED = {"system": "be brief", "tools": [{"name": "bash", "input_schema": {"type": "object"}}]}
LIMIT = {"max_tokens": 9_000}
API_BLOCK = {"type": "compaction", "content": "all of it", "signature": "s1gn3d"}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def words(tokens: int) -> dict[str, Any]:
    """A text block of about so many tokens."""
    return text("w" * round(tokens * bounds.COMPACTION_BYTES_PER_TOKEN))


def use(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "bash", "input": {}}


def result(call_id: str, tokens: int = 1) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": words(tokens)["text"]}


def user(*blocks: Any) -> Message:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> Message:
    return {"role": "assistant", "content": list(blocks)}


def tool_turns(count: int, tokens: int) -> list[Message]:
    calls = [f"t{n}" for n in range(count)]
    return [m for call in calls for m in (assistant(use(call)), user(result(call, tokens)))]


def request(messages: Sequence[Message], **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": list(messages), **FIXED, **more}


def own_note(messages: Sequence[Message], at: int) -> dict[str, Any]:
    reply = {"content": [text("the gist")], "stop_reason": "end_turn"}
    return compaction.note("own", compaction.summary_of(reply, "own"), messages, at, 170_000)


def history(messages: Sequence[Message]) -> History:
    made = History("m")
    for message in messages:
        made.add(message)
    assert made.messages == list(messages)
    return made


def compacted(messages: Sequence[Message], at: int) -> list[Message]:
    made = history(messages)
    compaction.apply(made, own_note(messages, at))
    return made.messages


@pytest.mark.parametrize(
    ("context", "window", "max_tokens", "due"),
    [
        (142_799, 200_000, 32_000, False),
        (142_800, 200_000, 32_000, True),
        (10**9, None, 32_000, False),
        (3_399, 8_000, 32_000, False),
        (3_400, 8_000, 32_000, True),
    ],
)
def test_it_is_due_at_85_percent_of_the_room_for_prompts(
    context: int, window: int | None, max_tokens: int, due: bool
) -> None:
    assert is_due(context, window, max_tokens) is due


@pytest.mark.parametrize(
    ("window", "tokens"), [(None, 20_000), (1_000_000, 20_000), (200_000, 20_000), (8_000, 1_000)]
)
def test_a_small_window_keeps_less(window: int | None, tokens: int) -> None:
    assert compaction.keep_tokens(window, 32_000) == tokens


def test_three_failures_in_a_row_turn_it_off_with_the_last_cause() -> None:
    twice = Attempts().failed("overloaded").failed("overloaded")
    off = twice.compacted().measured(still_due=True)
    assert (twice.off, off.off, off.cause) == (False, True, "it did not shrink enough")


def test_only_a_compaction_that_is_seen_to_have_shrunk_the_context_forgives_failures() -> None:
    once = Attempts().failed("overloaded")
    assert once.measured(still_due=False) == once
    assert once.compacted().failures == 1
    assert once.compacted().measured(still_due=False) == Attempts()


LONG_RUN = [user(text("do it all")), *tool_turns(300, 500)]
PROMPT, ANSWER = user(words(900)), assistant(words(900))
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
SEARCHING = [
    user(words(5_000)),
    assistant(SEARCH, use("a")),
    user(result("a")),
    assistant(FOUND, use("b")),
    user(result("b")),
    assistant(text("done")),
]


@pytest.mark.parametrize(
    ("messages", "keep", "expected"),
    [
        ([], 20_000, None),
        ([user(words(90_000))], 20_000, None),
        ([user(text("hi")), assistant(text("hello"))], 0, None),
        ([PROMPT, ANSWER] * 3, 20_000, None),  # one turn more than is kept gains too little
        ([PROMPT, ANSWER] * 4, 20_000, 4),
        ([PROMPT, ANSWER] * 30, 20_000, 40),
        (LONG_RUN, 20_000, 601 - 2 * 36),  # of one run: from an answer on
        ([*LONG_RUN, ANSWER, *[PROMPT, ANSWER] * 2], 20_000, 602),  # a prompt is preferred
        (LONG_RUN, 500, 601 - 2 * 2),  # two turns over the budget stay
        ([PROMPT, *tool_turns(5, 30_000)], 20_000, 7),
        # unless nothing were gained
        ([PROMPT, *tool_turns(2, 30_000)], 20_000, 3),
        ([user(words(4_000)), assistant(text("yes")), user(words(90_000))], 20_000, 2),
        ([user(words(4_000)), assistant(text("yes")), user(words(9_000))], 20_000, None),
        # results that closed a cancelled run, and the next prompt with them, stay with their calls
        ([*LONG_RUN[:201], assistant(use("a")), user(result("a"), text("go on"))], 0, 199),
        (SEARCHING, 0, 5),
        (SEARCHING[:4], 0, None),  # where the search is under way there is no border
    ],
)
def test_the_border_keeps_the_last_turns(
    messages: list[Message], keep: int, expected: int | None
) -> None:
    assert border(messages, keep) == expected


def test_an_earlier_summary_is_no_gain() -> None:
    summary = user(*own_note(LONG_RUN, 1)["summary"], words(9_000))
    assert border([summary, *LONG_RUN[1:3], PROMPT, ANSWER], 0) is None
    assert border([user(words(9_000)), *LONG_RUN[1:3], PROMPT, ANSWER], 0) == 3


def test_a_prompt_that_would_be_repeated_is_no_gain() -> None:
    run = [user(words(4_000)), *tool_turns(4, 100)]
    assert border(run, 20_000) is None
    assert border([user(words(9_000)), *run[1:]], 20_000) == 3


def test_the_request_is_the_same_prefix_and_one_question() -> None:
    prefix = [PROMPT, ANSWER]
    messages, more = compaction.summary_request(prefix, "own", 32_000)
    assert messages[:2] == prefix
    assert more == {"max_tokens": 16_000}
    assert "earlier summary" not in messages[2]["content"][0]["text"]
    assert compaction.summary_request(prefix, "own", 9_000)[1] == LIMIT


def test_the_question_joins_results_at_the_end_and_changes_nothing_that_was_said() -> None:
    prefix = [PROMPT, assistant(use("a")), user(result("a"))]
    messages, _ = compaction.summary_request(prefix, "own", 9_000, focus="the tests")
    assert [block["type"] for block in messages[-1]["content"]] == ["tool_result", "text"]
    assert messages[-1]["content"][1]["text"].endswith("the tests")
    assert prefix[-1] == user(result("a"))
    assert check_request(request(messages), HEADERS) is None


def test_a_second_summary_is_asked_to_follow_the_first() -> None:
    asked, _ = compaction.summary_request(compacted([PROMPT, ANSWER] * 4, 4), "own", 9_000)
    assert "earlier summary" in asked[-1]["content"][-1]["text"]


def test_the_api_is_asked_with_a_parameter_and_told_how_only_if_the_user_cares() -> None:
    messages, more = compaction.summary_request([PROMPT, ANSWER], "api", 9_000)
    assert messages == [PROMPT, ANSWER]
    assert more == {**LIMIT, "compaction": {"type": "summarize"}}
    _, more = compaction.summary_request([PROMPT, ANSWER], "api", 9_000, focus="the tests")
    assert more["compaction"]["instructions"].endswith("the tests")


@pytest.mark.parametrize(
    ("by", "content", "reason"),
    [
        ("own", [], "end_turn"),
        ("own", [text(" \n")], "end_turn"),
        ("own", [text("half a summ")], "max_tokens"),
        ("own", [text("no")], "refusal"),
        ("own", [text("let me look"), use("a")], "end_turn"),
        ("api", [], "max_tokens"),
        ("api", [{"type": "compaction", "content": None}], "compaction"),
        ("api", [text("hello")], "end_turn"),
    ],
)
def test_an_answer_that_is_no_whole_summary_is_a_failure_with_a_cause(
    by: Any, content: list[Any], reason: str
) -> None:
    with pytest.raises(CompactionFailed, match=reason):
        compaction.summary_of({"content": content, "stop_reason": reason}, by)


def test_the_prompt_under_way_is_repeated_word_for_word_through_every_compaction() -> None:
    once = compacted(LONG_RUN, 401)
    twice = compacted(once, 101)
    for messages in (once, twice):
        opening, prompt = messages[0]["content"]
        assert "compacted" in opening["text"]
        assert prompt == text("do it all")
        assert messages[1]["role"] == "assistant"


def test_only_what_the_user_asked_is_repeated_of_a_message_with_results_in_it() -> None:
    closed = [PROMPT, assistant(use("a")), user(result("a"), text("rather")), *tool_turns(2, 1)]
    assert own_note(closed, 5)["summary"][1:] == [text("rather")]


def test_a_prompt_that_is_kept_or_very_long_is_not_repeated() -> None:
    assert len(own_note([PROMPT, ANSWER] * 4, 4)["summary"]) == 1
    assert len(own_note([user(words(9_000)), *LONG_RUN[1:]], 401)["summary"]) == 1


def test_a_block_of_the_api_comes_first_as_it_was_needs_its_header_and_can_be_read() -> None:
    reply = {"content": [API_BLOCK], "stop_reason": "compaction"}
    note = compaction.note("api", compaction.summary_of(reply, "api"), LONG_RUN, 401, 170_000)
    native, elsewhere = history(LONG_RUN), history(LONG_RUN)
    compaction.apply(native, note)
    assert native.messages == [user(API_BLOCK), *LONG_RUN[401:]]
    compaction.apply(elsewhere, note, api_blocks=False)
    assert "all of it" in elsewhere.messages[0]["content"][0]["text"]
    heads = [LONG_RUN, elsewhere.messages, native.messages]
    assert [compaction.needs_beta(messages) for messages in heads] == [False, False, True]
    asked, _ = compaction.summary_request(native.messages, "own", 9_000)
    assert "earlier summary" in asked[-1]["content"][-1]["text"]


def loaded(records: Sequence[dict[str, Any]]) -> History:
    """The fold of a worker that starts."""
    made = History("m", FIXED)
    for record in records:
        if record["kind"] == "message":
            made.add(record["message"], "m", record.get("seal"))
        elif record.get("note") == compaction.COMPACTED:
            compaction.apply(made, record)
    return made


class Talk:
    """A conversation as a worker records it, with thinking signed as the demo model signs it."""

    def __init__(self, runs: Sequence[tuple[Any, ...]] = ()) -> None:
        self.records: list[dict[str, Any]] = []
        self.history = History("m", FIXED)
        self.ids = 0
        for run in runs:
            self.run(*run)

    def add(self, role: str, *blocks: Any) -> None:
        message = {"role": role, "content": list(blocks)}
        seal = {"seal": self.history.seal(message)} if role == "assistant" else {}
        self.records.append({"kind": "message", "message": message, **seal})
        assert not self.history.add(message, "m", seal.get("seal"))

    def think(self) -> dict[str, Any]:
        prefix = segments(request(self.history.messages))[-1].digest
        return {"type": "thinking", "thinking": "hm", "signature": signature(prefix, "hm")}

    def new_id(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    def run(self, prompt: int, turns: list[tuple[int, int, bool, str]], cancelled: bool) -> None:
        self.add("user", words(prompt))
        for calls, tokens, thinks, server in turns:
            found: list[Any] = [self.think()] if thinks else []
            asked = [self.new_id() for _ in range(calls)]
            if server:
                search = {**SEARCH, "id": self.new_id()}
                answer = {**FOUND, "tool_use_id": search["id"]}
                if server == "paused":  # the answer goes on in the next message
                    self.add("assistant", *found, search)
                    found = [answer]
                elif server == "answered later":
                    later = self.new_id()
                    self.add("assistant", *found, search, use(later))
                    self.add("user", result(later, tokens))
                    found = [answer]
                else:
                    found += [search, answer]
            self.add("assistant", *found, words(1 + tokens // 9), *map(use, asked))
            if asked:
                self.add("user", *(result(call, tokens) for call in asked))
        if not cancelled:
            self.add("assistant", *([self.think()] if turns else []), text("done"))

    def compact(self, keep: int) -> int | None:
        """As the loop does it, with every request held against the rules of the API."""
        messages = list(self.history.messages)
        at = border(messages, keep)
        if at is None:
            return None
        assert self.history.is_border(at)
        asked, more = compaction.summary_request(messages[:at], "own", 32_000)
        assert check_request(request(asked) | more, HEADERS) is None
        note = {"kind": "note", **own_note(messages, at)}
        self.records.append(note)
        compaction.apply(self.history, note)
        return at


TURNS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(1, 1_500),
        st.booleans(),
        st.sampled_from(["", "", "at once", "paused", "answered later"]),
    ),
    max_size=6,
)
RUNS = st.lists(st.tuples(st.integers(1, 1_500), TURNS, st.booleans()), min_size=1, max_size=4)
KEEP = st.sampled_from([0, 500, 3_000])


@settings(deadline=None, max_examples=60)
@given(RUNS, KEEP)
def test_what_is_kept_is_kept_word_for_word_and_the_whole_is_accepted(
    runs: list[Any], keep: int
) -> None:
    talk = Talk(runs)
    before = list(talk.history.messages)
    assert check_request(request(before), HEADERS) is None
    at = talk.compact(keep)
    assume(at is not None)
    after = talk.history.messages
    assert check_request(request(after), HEADERS) is None
    kept = [block for message in before[at:] for block in message["content"]]
    stays = [block for block in kept if block["type"] != "thinking"]
    sent = [block for message in after for block in message["content"]]
    assert sent[-len(stays) :] == stays
    called = {block["id"] for block in kept if block["type"].endswith("tool_use")}
    answers = {block["tool_use_id"] for block in kept if block["type"].endswith("tool_result")}
    assert answers == called


@settings(deadline=None, max_examples=30)
@given(RUNS, RUNS, RUNS, KEEP)
def test_a_worker_that_reads_the_records_sends_what_the_one_before_it_would_have(
    first: list[Any], second: list[Any], third: list[Any], keep: int
) -> None:
    talk = Talk()
    for runs in (first, second, third):
        for run in runs:
            talk.run(*run)
        talk.compact(keep)
        assert check_request(request(talk.history.messages), HEADERS) is None
    assert loaded(json.loads(json.dumps(talk.records))).messages == talk.history.messages


@settings(deadline=None, max_examples=60)
@given(RUNS, KEEP, st.integers(0))
def test_a_lost_record_costs_neither_the_summary_nor_what_was_kept_behind_it(
    runs: list[Any], keep: int, lost: int
) -> None:
    talk = Talk(runs)
    at = talk.compact(keep)
    assume(at is not None)
    summary = talk.records[-1]["summary"]
    del talk.records[lost % (len(talk.records) - 1)]
    made = loaded(talk.records)
    made.close()
    assert check_request(request(made.messages), HEADERS) is None
    assert made.messages[0]["content"][: len(summary)] == summary


def test_the_signatures_of_what_is_kept_would_be_refused_behind_our_summary() -> None:
    talk = Talk([(9_000, [(1, 5_000, True, "")] * 4, False)])
    before = list(talk.history.messages)
    at = talk.compact(0)
    refused = check_request(request([talk.history.messages[0], *before[at:]]), HEADERS)
    assert "bound to a different conversation" in str(refused)
