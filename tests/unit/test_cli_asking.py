"""How the command line shows a permission question, and what it makes of an answer."""

from __future__ import annotations

from typing import Any

import pytest

from client.cli import exit_codes, question
from client.cli.output import Output
from client.cli.parser import parse
from client.cli.permissions import pick
from client.cli.run_printer import RunPrinter
from client.errors import UsageError
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.events import Envelope

KINDS = {"allow_once": "allow_once", "allow_session": "allow_always", "reject_once": "reject_once"}
Capture = pytest.CaptureFixture[str]
FIRST, SECOND = "aaaa1111-0000", "aaaa2222-0000"


def asked(command: str = "git push", request_id: str = FIRST, **more: Any) -> dict[str, Any]:
    call = {"toolCallId": "t", "title": command, "kind": "execute", "status": "pending"}
    why = {"reason": "nothing allows it", "parts": [[command, "ask:mode"]], "rules": []}
    return {
        "request_id": request_id,
        "run_id": "r",
        "at": "2026-01-01T00:00:00.000Z",
        "toolCall": call | {"rawInput": {"command": command}, "locations": []} | more,
        "options": [{"optionId": o, "name": o, "kind": k} for o, k in KINDS.items()],
        "_meta": {"sidecar": why | {"outside": []}},
    }


def because(asked: dict[str, Any], **why: Any) -> dict[str, Any]:
    asked["_meta"]["sidecar"].update(why)
    return asked


def shown(asked: dict[str, Any]) -> str:
    return "\n".join(text for text, _ in question.lines(asked, ["1", "2", "3"]))


def test_a_question_says_what_why_and_what_may_be_answered() -> None:
    assert shown(asked()) == (
        "permission needed: git push\n"
        "why: nothing allows it\n"
        "  1  allow_once\n"
        "  2  allow_session\n"
        "  3  reject_once"
    )


def test_a_compound_command_shows_the_verdict_of_each_part() -> None:
    parts = [["cd app", "allow:builtin"], ["git push -f", "ask:rule bash(git push *)"]]
    text = shown(because(asked("cd app && git push -f"), parts=parts))
    assert "  | allow:builtin: cd app\n  | ask:rule bash(git push *): git push -f\n" in text


def test_a_path_outside_is_named() -> None:
    text = shown(because(asked(), outside=["/etc/pass\x1b[2Jwd"]))
    assert "outside the session's directories: /etc/pass\\x1b[2Jwd\n" in text


@pytest.mark.parametrize(
    ("command", "seen"),
    [
        ("echo a\x1b]0; ; rm -rf ~ ;\x07", "echo a\\x1b]0; ; rm -rf ~ ;\\x07"),
        ("rm -rf ~ #\rls", "rm -rf ~ #\\rls"),
        ("ls\x1b[2K\x1b[1G", "ls\\x1b[2K\\x1b[1G"),
        ("ls \u202e~ fr- mr", "ls \\u202e~ fr- mr"),
        ("ls\u200b\u2028\U000e0041\x9b2J\ud800", "ls\\u200b\\u2028\\U000e0041\\x9b2J\\ud800"),
        ("中文 é", "中文 é"),
    ],
)
def test_nothing_of_a_command_is_hidden_or_obeyed(command: str, seen: str) -> None:
    assert shown(asked(command)).split("\n")[0] == f"permission needed: {seen}"


def test_a_line_of_a_command_does_not_look_like_one_of_ours() -> None:
    command = "ls\nwhy: it only lists\n  1  Allow"
    text = shown(asked(command) | {"toolCall": asked(command)["toolCall"] | {"title": "ls…"}})
    assert text.startswith(
        "permission needed: ls…\n  | ls\n  | why: it only lists\n  |   1  Allow\nwhy: nothing"
    )


@pytest.mark.parametrize(("command", "hidden"), [("x" * 9_000, 1_000), ("x\n" * 4_500, 8_801)])
def test_what_is_not_shown_of_a_long_command_is_counted(command: str, hidden: int) -> None:
    assert "  | x" in shown(asked(command, title="x…"))
    assert f"  … {hidden} more characters; " in shown(asked(command, title="x…"))


def test_an_edit_is_shown_as_what_it_changes() -> None:
    change = {"type": "diff", "path": "/p/a.py", "oldText": "one\ntwo\n", "newText": "one\nsix\n"}
    text = shown(asked(content=[change], rawInput={"old_string": "two"}))
    assert "  | --- /p/a.py\n  | +++ /p/a.py\n" in text
    assert "  |  one\n  | -two\n  | +six\n" in text
    assert "old_string" not in text


def test_other_input_is_shown_by_name() -> None:
    text = shown(asked("write a.txt", rawInput={"path": "a.txt", "content": "x\ny", "n": 1}))
    assert "\npath:\n  | a.txt\ncontent:\n  | x\n  | y\nn:\n  | 1\n" in text


def test_how_to_allow_names_the_rules_of_all_questions_once() -> None:
    rules = ['bash(echo "a" *)', "bash(git push *)"]
    questions = [because(asked(), rules=rules), because(asked(), rules=rules[1:])]
    assert question.how_to_allow(questions, "/c.toml").startswith(
        '[permissions] allow = ["bash(echo \\"a\\" *)", "bash(git push *)"] in /c.toml'
    )
    assert "allow =" not in question.how_to_allow([asked()], "/c.toml")


@pytest.mark.parametrize("request_id", [FIRST, "aaaa1"])
def test_a_question_is_named_by_the_start_of_its_id(request_id: str) -> None:
    assert pick([asked(request_id=FIRST), asked(request_id=SECOND)], request_id)["request_id"] == (
        FIRST
    )


def test_the_only_question_needs_no_name() -> None:
    assert pick([asked()], "-") == asked()


@pytest.mark.parametrize("request_id", ["aaaa", "-", "aaa", "bbbb", ""])
def test_an_answer_never_goes_to_a_question_that_may_not_be_meant(request_id: str) -> None:
    with pytest.raises(SidecarError) as refused:
        pick([asked(request_id=FIRST), asked(request_id=SECOND)], request_id)
    assert exit_codes.of_error(refused.value) == exit_codes.USAGE


@pytest.mark.parametrize(
    ("line", "request_id", "choice", "reason"),
    [
        ("s once", "-", "once", ""),
        ("s - reject --reason no", "-", "reject", "no"),
        ("s aaaa1 -o json session", "aaaa1", "session", ""),
    ],
)
def test_an_answer_may_leave_out_which_question(
    line: str, request_id: str, choice: str, reason: str
) -> None:
    _, args = parse(["permissions", "answer", *line.split()])
    assert (args.id, args.request, args.choice, args.reason) == ("s", request_id, choice, reason)


@pytest.mark.parametrize("line", ["s", "s yes", "s aaaa1 allow_once"])
def test_only_a_choice_is_an_answer(line: str) -> None:
    with pytest.raises(UsageError):
        parse(["permissions", "answer", *line.split()])


def test_a_run_that_ended_for_want_of_a_permission_is_told_apart() -> None:
    result = {"stop_reason": "error", "error": {"type": "permission_required", "message": ""}}
    assert exit_codes.of_result(result) == exit_codes.FORBIDDEN


def event(kind: str, **data: Any) -> Envelope:
    return {"seq": 1, "at": "", "run_id": "r", "type": kind, "data": data}


def resolved(option_id: str | None, reason: str = "", outcome: str = "selected") -> Envelope:
    answer = {"request_id": FIRST, "outcome": outcome, "option_id": option_id, "reason": reason}
    return event("permission_resolved", **answer)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (resolved("allow_once"), "allowed once: git push"),
        (resolved("reject_once", "not to\x1bday"), "rejected: git push (not to\\x1bday)"),
        (resolved(None, outcome="cancelled"), "not answered: git push"),
        (resolved(None, outcome="unattended"), "needed, and nobody was there: git push"),
    ],
)
def test_the_answer_is_told(answer: Envelope, told: str, capsys: Capture) -> None:
    printer = RunPrinter(Output("table", "never"), live=True)
    printer.show(event("permission_requested", **asked()))
    printer.show(answer)
    assert capsys.readouterr().err == f"permission {told}\n"


def test_what_happens_beside_a_question_is_shown_after_it(capsys: Capture) -> None:
    printer = RunPrinter(Output("table", "never"), live=True)
    printer.show(event("update", sessionUpdate="agent_message_chunk", content={"text": "I will"}))
    printer.pause()
    assert capsys.readouterr().out == "I will\n"
    printer.show(event("notice", title="one"))
    printer.show(event("notice", title="two"))
    assert capsys.readouterr() == ("", "")
    printer.resume()
    assert capsys.readouterr().err == "notice: one\nnotice: two\n"
