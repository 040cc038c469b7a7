"""How events look to an ACP-C client."""

from __future__ import annotations

from typing import Any

from session_worker import updates
from session_worker.http.acp_c.translate import OUTPUT_SHOWN_CHARS, TITLE_CHARS, View, title
from sidecar.protocol import events

Json = dict[str, Any]


def view(*, notices: bool = False, own: tuple[str, ...] = (), titled: bool = True) -> View:
    return View(notices=notices, own_runs=own, titled=titled)


def event(kind: str, data: Json, run_id: str | None = "r") -> Json:
    return {"seq": 7, "at": "", "run_id": run_id, "type": kind, "data": data}


def said(text: str, kind: str = "agent_message_chunk", message_id: str = "m1") -> Json:
    return event(events.UPDATE, updates.chunk(kind, text, message_id))


def retry(*, discard: bool) -> Json:
    return event(events.RETRY, {"attempt": 1, "reason": "", "wait_s": 0, "discard": discard})


def discarded(shown: list[Json]) -> list[str]:
    return [update["_meta"]["sidecar/discarded"] for update in shown]


def test_an_update_is_shown_as_it_is() -> None:
    usage = updates.usage(1, 2, None)
    assert view().updates(event(events.UPDATE, usage)) == [usage]


def test_a_prompt_is_shown_to_all_but_who_sent_it() -> None:
    prompt = said("hi", "user_message_chunk")
    assert view(own=("r",)).updates(prompt) == []
    assert view(own=("other",)).updates(prompt) == [prompt["data"]]


def test_the_first_prompt_is_the_title_also_for_who_sent_it() -> None:
    fresh = view(own=("r",), titled=False)
    titled = {"sessionUpdate": "session_info_update", "title": "fix it"}
    assert fresh.updates(said("fix\nit", "user_message_chunk")) == [titled]
    assert fresh.updates(said("again", "user_message_chunk")) == []
    assert len(title("x" * 1000)) == TITLE_CHARS


def test_a_message_that_broke_off_is_taken_back_by_its_id() -> None:
    shown = view()
    shown.updates(said("half", message_id="m1"))
    assert shown.updates(retry(discard=False)) == []
    assert discarded(shown.updates(retry(discard=True))) == ["m1"]
    assert shown.updates(retry(discard=True)) == []  # nothing new was shown


def test_a_worker_that_died_in_the_middle_takes_back_as_well() -> None:
    shown = view()
    shown.updates(said("half", message_id="m1"))
    assert discarded(shown.updates(event(events.RESTARTED, {"incarnation": 2}))) == ["m1"]


def test_a_message_that_is_whole_is_never_taken_back() -> None:
    for whole in (
        event(events.API_CALL, {"stop_reason": "tool_use"}),
        event(events.RUN_FINISHED, {"stop_reason": "final_answer"}),
    ):
        shown = view()
        shown.updates(said("all of it"))
        shown.updates(whole)
        assert shown.updates(retry(discard=True)) == []


def test_a_call_cut_off_at_max_tokens_is_taken_back() -> None:
    shown = view()
    shown.updates(said("and now", message_id="m1"))
    shown.updates(event(events.API_CALL, {"stop_reason": "max_tokens"}))
    assert discarded(shown.updates(retry(discard=True))) == ["m1"]


def test_notices_go_to_those_who_take_them_and_errors_to_all() -> None:
    info = event(events.NOTICE, {"severity": "info", "title": "so"})
    error = event(events.NOTICE, {"severity": "error", "title": "broken"})
    assert view(notices=True).updates(info) == [{"sessionUpdate": "notice", **info["data"]}]
    assert view().updates(info) == []
    (shown,) = view().updates(error)
    assert shown["sessionUpdate"] == "agent_message_chunk"
    assert shown["content"]["text"] == "broken"


def test_live_output_is_repeated_up_to_a_bound_until_the_tool_has_ended() -> None:
    shown = view()

    def output(text: str) -> str:
        (update,) = shown.updates(event(events.TOOL_OUTPUT, {"tool_call_id": "t", "text": text}))
        return update["content"][0]["content"]["text"]

    assert output("a") == "a"
    assert output("b") == "ab"
    assert output("c" * OUTPUT_SHOWN_CHARS) == "c" * OUTPUT_SHOWN_CHARS
    ended = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed"}
    assert shown.updates(event(events.UPDATE, ended)) == [ended]
    assert output("new") == "new"


def test_what_clients_have_no_word_for_is_left_out() -> None:
    for kind in (events.STATE, events.RUN_STARTED, events.API_CALL):
        assert view().updates(event(kind, {"stop_reason": None, "state": "idle"})) == []


def test_an_event_that_was_too_large_for_the_ring_is_left_out() -> None:
    for kind in (events.UPDATE, events.NOTICE, events.TOOL_OUTPUT, events.RETRY):
        assert view().updates(event(kind, {})) == []
