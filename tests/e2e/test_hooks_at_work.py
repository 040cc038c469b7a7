"""Hooks in a real session: what they may stop, change and say, and that they hold nothing up."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model import Reply, text
from tests.support.daemon import Daemon
from tests.support.processes import eventually, of_home
from tests.support.questions import answered, asked, configure, notices, pending, results, trusted
from tests.support.scripted import FINE, Scripted, bash, scripted_session

Json = dict[str, Any]

HEARD = 'heard=$(cat); printf "%s\\n" "$heard" >> hooks.log\n'
"""Begins every script: what the hook was told, a line an event."""
TOUCH = Reply([bash("touch made")])


class Hooked:
    """Sessions of a trusted project with hooks."""

    def __init__(self, daemon: Daemon, work: Path, stack: ExitStack) -> None:
        self.work = work
        self._daemon = daemon
        self._stack = stack

    def session(self, settings: str = "", /, mode: str = "bypass", **hooks: str) -> Scripted:
        """`hooks`: an event, with what `sh` does then."""
        tables = [
            f"[[hooks]]\nevent = '{event}'\ncommand = ['sh', '-c', {json.dumps(HEARD + script)}]\n"
            for event, script in hooks.items()
        ]
        configure(self.work, "\n".join([settings, *tables]))
        return self._stack.enter_context(scripted_session(self._daemon, self.work, mode=mode))

    def heard(self, event: str) -> list[Json]:
        """What hooks of `event` were told."""
        log = self.work / "hooks.log"
        told = map(json.loads, log.read_text().splitlines()) if log.exists() else ()
        return [payload for payload in told if payload["hook_event_name"] == event]

    def made(self) -> bool:
        return (self.work / "made").exists()


@pytest.fixture
def hooked(daemon: Daemon, work: Path) -> Iterator[Hooked]:
    with ExitStack() as stack:
        stack.enter_context(trusted(daemon, work))
        yield Hooked(daemon, work, stack)


def says(**answer: Any) -> str:
    """The script of a hook that answers so."""
    return f"echo {shlex.quote(json.dumps(answer))}"


def words(session: Scripted, message: int) -> list[str]:
    """The texts of a message of the last request."""
    return [b["text"] for b in session.sent[message]["content"] if b["type"] == "text"]


# --- before a call ---------------------------------------------------------------------------


def test_a_hook_is_told_of_a_call_and_denies_it_in_every_mode(hooked: Hooked) -> None:
    session = hooked.session(PreToolUse="echo 'not on a Friday' >&2; exit 2")
    session.completes(TOUCH)
    assert results(session) == ["not on a Friday"]
    assert not hooked.made()
    (told,) = hooked.heard("PreToolUse")
    assert told["tool_use_id"]
    assert told | {"tool_use_id": ""} == {
        "session_id": session.endpoint.session_id,
        "cwd": str(hooked.work),
        "hook_event_name": "PreToolUse",
        "tool_name": "bash",
        "tool_use_id": "",
        "tool_input": {"command": "touch made"},
    }


def test_a_hook_has_a_person_asked_who_is_offered_no_rule_to_remember(hooked: Hooked) -> None:
    session = hooked.session(PreToolUse=says(decision="ask", reason="is it wise?"))
    question, _ = answered(session, "allow_once", TOUCH, FINE)
    assert question["_meta"]["sidecar"]["reason"] == "is it wise?"
    assert [o["optionId"] for o in question["options"]] == ["allow_once", "reject_once"]
    assert hooked.made()


def test_what_a_hook_made_of_an_input_is_judged_shown_and_run(hooked: Hooked) -> None:
    hook = says(updated_input={"command": "touch other"}, context="see the other one")
    session = hooked.session(mode="ask", PreToolUse=hook)
    question, _ = answered(session, "allow_once", TOUCH, FINE)
    assert question["toolCall"]["title"] == "touch other"
    assert question["toolCall"]["rawInput"] == {"command": "touch other"}
    assert question["_meta"]["sidecar"]["rules"] == ["bash(touch *)"]
    (result,) = results(session)
    assert 'a hook changed the input to {"command": "touch other"}' in result
    assert "see the other one" in result
    assert (hooked.work / "other").exists()
    assert not hooked.made()


def test_an_input_that_a_hook_made_invalid_is_not_run(hooked: Hooked) -> None:
    session = hooked.session(PreToolUse=says(updated_input={"command": 3}))
    session.completes(TOUCH)
    assert results(session)[0].startswith("a hook changed the input, and then: ")
    assert not hooked.made()


def test_a_vote_of_a_hook_spares_a_question_but_beats_no_rule(hooked: Hooked) -> None:
    rules = "[permissions]\ndeny = ['bash(touch denied)']\nask = ['bash(touch doubtful)']"
    session = hooked.session(rules, mode="ask", PreToolUse=says(decision="allow"))
    session.completes(TOUCH)
    assert hooked.made()
    session.completes(Reply([bash("touch denied")]))
    assert "bash(touch denied)" in results(session)[0]
    answered(session, "reject_once", Reply([bash("touch doubtful")]), FINE)
    answered(session, "reject_once", Reply([bash("echo > .git/hooks/post-commit")]), FINE)
    assert not {p.name for p in hooked.work.iterdir()} & {"denied", "doubtful", ".git"}


def test_a_broken_hook_is_told_once_and_denies_only_if_it_is_to(hooked: Hooked) -> None:
    session = hooked.session(PreToolUse="echo oops")
    session.completes(TOUCH)
    session.completes(TOUCH)
    assert hooked.made()
    assert len([n for n in notices(session) if "stdout is for JSON alone" in n]) == 1
    missing = (
        "[[hooks]]\nevent = 'PreToolUse'\ncommand = ['python3', '/missing.py']\non_error = 'deny'"
    )
    strict = hooked.session(missing)
    strict.completes(Reply([bash("touch more")]))
    assert "no file '/missing.py'" in results(strict)[0]
    assert [n for n in notices(strict) if "/missing.py" in n]
    assert not (hooked.work / "more").exists()


def test_hooks_of_an_untrusted_project_are_not_run(daemon: Daemon, work: Path) -> None:
    with ExitStack() as stack:
        session = Hooked(daemon, work, stack).session(PreToolUse="exit 2", SessionStart="true")
        session.completes(TOUCH)
        assert [n for n in notices(session) if "sidecarctl trust" in n]
    assert (work / "made").exists()
    assert not (work / "hooks.log").exists()


@pytest.mark.parametrize(
    ("event", "answers"),
    [
        ("UserPromptSubmit", []),
        ("PreToolUse", [TOUCH]),
        ("PostToolUse", [TOUCH]),
        ("Stop", [FINE]),
    ],
)
def test_a_cancel_ends_a_hook_that_hangs(
    hooked: Hooked, daemon: Daemon, event: str, answers: list[Reply]
) -> None:
    script = "[ -e hanging ] || { touch hanging; sleep 60; }"
    session = hooked.session(**{event: script})
    run_id = session.start(*answers)
    eventually((hooked.work / "hanging").exists, "the hook hangs")
    session.cancel(run_id)
    assert "sleep" not in [process.name() for process in of_home(daemon.home)]
    assert hooked.made() == (event == "PostToolUse")
    session.completes(TOUCH)


# --- after a call ----------------------------------------------------------------------------


def test_a_hook_adds_to_a_result_and_knows_a_failure_from_a_success(hooked: Hooked) -> None:
    session = hooked.session(
        PostToolUse=says(context="well done"),
        PostToolUseFailure="echo 'look at the log' >&2; exit 2",
    )
    session.completes(Reply([bash("echo out"), bash("echo err; exit 3")]))
    good, bad = results(session)
    assert good.startswith("out\n")
    assert good.endswith("\n\nwell done")
    assert bad.startswith("err\n")
    assert bad.endswith("\n\nlook at the log")
    (told,) = hooked.heard("PostToolUse")
    assert told["tool_result"].startswith("out\n")
    assert [told["tool_input"] for told in hooked.heard("PostToolUseFailure")] == [
        {"command": "echo err; exit 3"}
    ]


# --- prompts, and the life of a session ------------------------------------------------------


def test_a_hook_holds_a_prompt_back_or_adds_to_it(hooked: Hooked) -> None:
    script = "case $heard in *secret*) echo 'no secrets' >&2; exit 2;; *) " + says(context="mind")
    session = hooked.session(UserPromptSubmit=script + ";; esac")
    run = session.prompt(prompt="the secret is 42")
    assert run["status"] == "failed"
    assert run["result"]["error"] == {"type": "prompt_blocked", "message": "no secrets"}
    session.completes()
    assert words(session, 0) == ["go", "mind"]
    assert "secret" not in str(session.bodies)
    assert [told["prompt"] for told in hooked.heard("UserPromptSubmit")][-1] == "go"


def test_a_hook_says_something_at_the_start_of_every_worker(hooked: Hooked) -> None:
    session = hooked.session(SessionStart=says(context="the build is red"))
    session.completes()
    session.completes()
    assert words(session, 0) == ["go", "the build is red"]
    assert words(session, 2) == ["go"]
    session.crash()
    session.completes()
    assert words(session, 4) == ["go", "the build is red"]
    assert [told["source"] for told in hooked.heard("SessionStart")] == ["startup", "resume"]


def test_a_stop_hook_sends_a_run_on_three_times_at_most(hooked: Hooked) -> None:
    session = hooked.session(Stop="echo 'run the tests' >&2; exit 2")
    run = session.prompt(*[FINE] * 4)
    assert (run["result"]["stop_reason"], run["result"]["turns"]) == ("final_answer", 4)
    assert [words(session, at) for at in (2, 4, 6)] == [["run the tests"]] * 3
    told = hooked.heard("Stop")
    assert [payload["stop_hook_active"] for payload in told] == [False, True, True]
    assert {payload["last_assistant_message"] for payload in told} == {"fine"}


def test_a_stop_hook_that_is_content_lets_a_run_end(hooked: Hooked) -> None:
    script = "[ -e made ] || { echo 'make it' >&2; exit 2; }"
    session = hooked.session(Stop=script)
    run = session.prompt(FINE, TOUCH, FINE)
    assert run["result"]["turns"] == 3
    assert len(hooked.heard("Stop")) == 2


def test_hooks_stand_at_both_ends_of_a_compaction(hooked: Hooked) -> None:
    session = hooked.session(PreCompact=says(context="keep the paths"), PostCompact="true")
    for _ in range(2):
        session.prompt(FINE, prompt="long words " * 5000)
    session.answers.append(Reply([text("## Goal")]))
    path = f"/sessions/{session.endpoint.session_id}/compact"
    assert session.endpoint.post(path, {"focus": "the plan"})[0] == 200
    assert "keep the paths" in str(session.bodies[-1]["messages"])
    (before,), (after,) = hooked.heard("PreCompact"), hooked.heard("PostCompact")
    assert (before["trigger"], before["custom_instructions"]) == ("manual", "the plan")
    assert after["trigger"] == "manual"
    assert after["summary"]


def test_a_hook_hears_of_the_end_of_a_session(hooked: Hooked, daemon: Daemon) -> None:
    session = hooked.session(SessionEnd="true")
    session.completes()
    assert hooked.heard("SessionEnd") == []
    daemon.call("session.destroy", session_id=session.endpoint.session_id)
    (told,) = hooked.heard("SessionEnd")
    assert told["reason"] == "destroyed"


def test_a_hook_has_no_keys_and_knows_its_session(hooked: Hooked) -> None:
    session = hooked.session(UserPromptSubmit="env > env")
    session.completes()
    env = dict(
        line.split("=", 1) for line in (hooked.work / "env").read_text().splitlines() if "=" in line
    )
    assert env["SIDECAR_SESSION"] == session.endpoint.session_id
    assert env["SIDECAR_HOOK_EVENT"] == "UserPromptSubmit"
    assert not [name for name in env if name.startswith("ANTHROPIC_")]


def test_a_question_of_a_hook_is_withdrawn_with_its_run(hooked: Hooked) -> None:
    session = hooked.session(PreToolUse=says(decision="ask", reason="sure?"))
    run_id = session.start(TOUCH)
    asked(session.endpoint)
    session.cancel(run_id)
    assert pending(session.endpoint) == []
    assert not hooked.made()
