"""What the command line shows, and what it answers its shell."""

from typing import Any

import pytest

from client.cli import exit_codes
from client.cli.output import Output
from client.cli.run_printer import RunPrinter
from client.cli.terminal import one_line, printable
from client.errors import ConnectionLost, EndpointRefusal, Unreachable, UsageError
from client.sse import SseParser
from sidecar.protocol.errors import CODES, SidecarError
from sidecar.protocol.events import Envelope


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext 中文 é", "plain\n\ttext 中文 é"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"),
        ("\x1b]52;c;ZXZpbA==\x07", ""),
        ("\x1bPq#0\x1b\\a\x1b_x\x1b\\b", "ab"),
        ("\x1b(Ba\x1bcb", "ab"),
        ("one\r\ntwo", "one\ntwo"),
        ("over\rwritten\x08", "over\\rwritten\\x08"),
        ("bell\x07 null\x00 del\x7f", "bell\\x07 null\\x00 del\\x7f"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\ud800", "\\ud800"),
        ("cut \x1b", "cut \\x1b"),
        ("\x1b]0;no end", "0;no end"),
    ],
)
def test_nothing_a_terminal_would_obey_gets_through(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_sequence_cut_in_two_is_still_harmless() -> None:
    text = "a\x1b]52;c;ZXZpbA==\x07b\x1b[2Jc"
    for cut in range(len(text)):
        assert "\x1b" not in printable(text[:cut]) + printable(text[cut:])


def test_a_flood_of_unfinished_sequences_is_gone_in_no_time() -> None:
    assert printable("\x1b]" * 500_000) == ""  # quadratic, it would outlast the test


def test_a_cell_stays_on_its_line() -> None:
    assert one_line("a\nb\tc\x1b[A") == "a\\nb c"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("?"), 2),
        (SidecarError("invalid_params", "?", ""), 2),
        (SidecarError("ambiguous_id", "?", ""), 2),
        (SidecarError("timed_out", "?", ""), 3),
        (SidecarError("session_not_found", "?", ""), 4),
        (SidecarError("forbidden", "?", ""), 5),
        (Unreachable("?", ""), 6),
        (SidecarError("shutting_down", "?", ""), 6),
        (SidecarError("name_taken", "?", ""), 7),
        (SidecarError("limit_reached", "?", ""), 7),
        (SidecarError("overloaded", "?", ""), 7),
        (SidecarError("start_failed", "?", ""), 1),
        (ConnectionLost("?"), 1),
        (EndpointRefusal(409, "invalid_input", "?"), 7),
        (EndpointRefusal(404, "not_found", "?"), 4),
        (EndpointRefusal(403, "forbidden", "?"), 5),
        (EndpointRefusal(422, "invalid_input", "?"), 2),
        (EndpointRefusal(500, "server_error", "?"), 1),
    ],
)
def test_every_error_has_its_exit_code(error: SidecarError, code: int) -> None:
    assert exit_codes.of_error(error) == code


def test_no_error_of_the_daemon_looks_like_success() -> None:
    assert all(exit_codes.of_error(SidecarError(code, "?", "")) for code in CODES)


@pytest.mark.parametrize(
    "reason",
    [
        *("max_turns", "max_tokens", "refusal", "cancelled", "error"),
        *("budget", "loop_detected", "context_limit"),
    ],
)
def test_only_a_final_answer_is_a_good_end(reason: str) -> None:
    assert exit_codes.of_result({"stop_reason": "final_answer"}) == 0
    assert exit_codes.of_result({"stop_reason": reason}) == 8


def event(kind: str, **data: Any) -> Envelope:
    return {"seq": 1, "at": "", "run_id": "r", "type": kind, "data": data}


def chunk(text: str) -> Envelope:
    return event("update", sessionUpdate="agent_message_chunk", content={"text": text})


def tool_update(status: str, text: str = "", **more: Any) -> Envelope:
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    update = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": status}
    return event("update", **update, content=content, **more)


TOOL_CALL = event("update", sessionUpdate="tool_call", toolCallId="t", name="bash", title="bash")
STARTED = tool_update("in_progress", title="ls -l")
FINISHED = event("run_finished", stop_reason="final_answer", turns=2, tool_calls=1)


def shown(
    capsys: pytest.CaptureFixture[str], *events: Envelope, live: bool = False
) -> tuple[str, str]:
    """stdout and stderr."""
    printer = RunPrinter(Output("table", "never"), live=live)
    for each in events:
        printer.show(each)
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_words_go_to_stdout_and_doings_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    ended = tool_update("completed", "a.py\n[exit 0]")
    said, done = shown(
        capsys, chunk("I will "), chunk("look."), TOOL_CALL, STARTED, ended, chunk("a.py"), FINISHED
    )
    assert said == "I will look.\na.py\n"
    assert done == ("• bash: ls -l\na.py\n[exit 0]\nfinal_answer (turns: 2, tool calls: 1)\n")


def test_what_code_calls_stands_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    code = {"toolCallId": "s", "name": "code_execution", "title": "x = 1…"}
    began = event("update", sessionUpdate="tool_call", status="in_progress", **code)
    by_code = event("update", **TOOL_CALL["data"], _meta={"sidecar/caller": {"tool_id": "s"}})
    ended = event("update", **tool_update("completed", "42")["data"] | {"toolCallId": "s"})
    events = [chunk("so"), began, ended_call("tool_use"), by_code, STARTED, ended, FINISHED]
    assert shown(capsys, *events) == (
        "so\n",
        "• code_execution: x = 1…\n  ↳ bash: ls -l\n42\nfinal_answer (turns: 2, tool calls: 1)\n",
    )
    said, done = shown(capsys, chunk("so"), began, retry(discard=True), chunk("so"), FINISHED)
    assert said == "so\n", "not twice, though its answer broke off"
    assert "does not count" in done


def ended_call(stop_reason: str | None) -> Envelope:
    return event("api_call", stop_reason=stop_reason)


def retry(*, discard: bool, wait_s: float = 0.0) -> Envelope:
    return event("retry", attempt=1, reason="overloaded_error", wait_s=wait_s, discard=discard)


def thought(text: str) -> Envelope:
    return event("update", sessionUpdate="agent_thought_chunk", content={"text": text})


VOID = "; the unfinished answer above does not count"


@pytest.mark.parametrize(
    ("live", "said", "told"),
    [
        (False, "Hello.\n", "retrying (overloaded_error) in 1.5 s"),
        (True, "Hel\nHello.\n", f"retrying (overloaded_error) in 1.5 s{VOID}"),
    ],
)
def test_an_answer_that_broke_off_is_taken_back_where_it_was_seen_and_else_never_said(
    live: bool, said: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    again = (chunk("Hello."), ended_call("end_turn"), FINISHED)
    broken = (chunk("Hel"), ended_call(None), retry(discard=True, wait_s=1.5))
    out, err = shown(capsys, *broken, *again, live=live)
    assert (out, err.splitlines()[0]) == (said, told)


def test_a_retry_of_what_nobody_saw_takes_nothing_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = (chunk("Looking."), ended_call("tool_use"), TOOL_CALL)
    for live in (False, True):
        for again in (retry(discard=True, wait_s=0.01), retry(discard=False)):
            said, done = shown(capsys, *before, again, chunk("Done."), FINISHED, live=live)
            assert said == "Looking.\nDone.\n"
            assert done.startswith("retrying (overloaded_error)\n")


def test_thoughts_of_a_broken_answer_are_taken_back_too(capsys: pytest.CaptureFixture[str]) -> None:
    _, done = shown(capsys, thought("hm"), ended_call(None), retry(discard=True))
    assert done == f"hm\nretrying (overloaded_error){VOID}\n"


def test_an_answer_cut_at_max_tokens_may_be_asked_for_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cut = (chunk("Half"), ended_call("max_tokens"))
    whole = (chunk("Whole."), ended_call("tool_use"))
    assert shown(capsys, *cut, retry(discard=True), *whole)[0] == "Whole."
    assert shown(capsys, *cut, FINISHED)[0] == "Half\n"


@pytest.mark.parametrize("reason", ["refusal", None])
def test_what_no_history_keeps_is_not_said_in_a_pipe(
    reason: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(capsys, chunk("I was about"), ended_call(reason), FINISHED)[0] == ""


def test_a_restarted_worker_takes_its_unfinished_answer_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    restarted = event("restarted")
    said, done = shown(capsys, chunk("Hel"), restarted, chunk("Hello."), FINISHED)
    assert (said, "does not count" in done) == ("Hello.\n", False)
    _, done = shown(capsys, chunk("Hel"), restarted, live=True)
    assert done == f"the session's worker was restarted{VOID}\n"


def test_a_gap_keeps_the_words_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, chunk("Before."), event("gap"), FINISHED)[0] == "Before.\n"


def test_a_notice_of_a_compaction_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    _, done = shown(capsys, event("notice", severity="info", title="Compacted: half of it."))
    assert done == "info: Compacted: half of it.\n"


def test_what_was_seen_live_is_not_shown_again(capsys: pytest.CaptureFixture[str]) -> None:
    live = [event("tool_output", tool_call_id="t", text=text) for text in ("one\ntw", "o\n")]
    _, done = shown(
        capsys, TOOL_CALL, STARTED, *live, tool_update("completed", "one\ntwo\nthree\n[exit 0]")
    )
    assert done == "• bash: ls -l\none\ntwo\nthree\n[exit 0]\n"


def test_a_long_result_is_cut_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    _, done = shown(capsys, tool_update("completed", "line\n" * 120))
    assert done.endswith("line\n… 100 more lines\n")


def test_a_call_that_never_ran_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    _, done = shown(capsys, TOOL_CALL, tool_update("failed", "there is no tool 'bash'"))
    assert done == "• bash\nthere is no tool 'bash'\n"


def test_events_that_were_stored_cut_do_not_break_the_view(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kinds = ["update", "tool_output", "notice", "retry", "run_finished", "gap", "something_new"]
    said, done = shown(capsys, *map(event, kinds), event("update", sessionUpdate="tool_call"))
    assert said == ""
    assert "overwritten" in done


def test_a_table_is_as_wide_as_its_longest_cells(capsys: pytest.CaptureFixture[str]) -> None:
    Output("table", "never").table(("ID", "NAME"), [("1", "a\x1b[2J"), ("1234", "")])
    assert capsys.readouterr().out == "ID    NAME\n1     a\n1234\n"


@pytest.mark.parametrize(
    ("asked", "colored"), [("always", True), ("never", False), ("auto", False)]
)
def test_colour_needs_a_terminal_or_an_order(
    asked: str, colored: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    Output("table", asked).note("careful", "31")
    assert ("\x1b[31m" in capsys.readouterr().err) is colored


def test_server_sent_events_survive_any_cut_of_the_stream() -> None:
    stream = (
        b': keep-alive\n\nid: 7\nevent: update\ndata: {"a": "b: c"}\n\n'
        b"event: gap\r\ndata: {}\r\n\r\ndata: last\n\n"
    )
    for cut in range(len(stream) + 1):
        parser = SseParser()
        events = parser.feed(stream[:cut]) + parser.feed(stream[cut:])
        assert events == [("update", b'{"a": "b: c"}'), ("gap", b"{}"), ("", b"last")]
