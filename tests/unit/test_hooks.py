"""Hooks: their configuration, what they may say, and real ones that misbehave."""

import asyncio
import dataclasses
import json
import os
import re
import shlex
import signal
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from session_worker.hooks import (
    HOOK_OUTPUT_BYTES,
    HOOK_TEXT_CHARS,
    HookFailed,
    HookOutcome,
    Hooks,
    combine,
    matches,
    understand,
)
from sidecar.protocol.bounds import KIB, MIB
from sidecar.protocol.hooks import HOOKS_MAX, Hook, locate, parse_hooks

SH = {"event": "PreToolUse", "command": ["sh", "-c", "true"]}
DENY = "echo no >&2; exit 2"


def test_an_entry_has_defaults_and_keeps_its_source_over_the_wire() -> None:
    (hook,) = parse_hooks([SH], "project")
    assert hook == Hook("PreToolUse", ("sh", "-c", "true"), "", 30, "allow", "project")
    assert Hook.from_wire(json.loads(json.dumps(dataclasses.asdict(hook)))) == hook


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"event": "PreTool"}, "event is one of PreToolUse"),
        ({"event": ["Stop"]}, "event is one of"),
        ({"command": "check.py"}, "a list of words"),
        ({"command": []}, "a list of words"),
        ({"command": ["sh", 1]}, "a list of words"),
        ({"command": ["sh", "a\0b"]}, "a list of words"),
        ({"command": ["./check"]}, "neither an absolute path nor a name"),
        ({"timeout_s": 0}, "timeout_s is more than 0"),
        ({"timeout_s": 601}, "at most 600"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"timeout_s": True}, "timeout_s"),
        ({"on_error": "ask"}, "on_error is"),
        ({"event": "Stop", "on_error": "deny"}, "on_error = 'deny' is for"),
        ({"event": "Stop", "matcher": "bash"}, "Stop has nothing"),
        ({"matcher": 1}, "matcher is a text"),
        ({"source": "system"}, "unknown setting 'source'"),
        ({"on-error": "deny"}, "unknown setting 'on-error'"),
    ],
)
def test_a_wrong_entry_is_refused_by_its_number(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=f"hook 2: .*{re.escape(complaint)}"):
        parse_hooks([SH, SH | changes])


@pytest.mark.parametrize("raw", [{}, "x", [SH] * (HOOKS_MAX + 1), [1]])
def test_what_is_no_short_list_of_tables_is_refused(raw: object) -> None:
    with pytest.raises(ValueError, match="hook"):
        parse_hooks(raw)


@pytest.mark.parametrize(
    "command",
    [
        ["python3", "missing.py"],
        ["python3", "-I", "-W", "ignore", "/missing/check"],
        ["sh", "-e", "./missing"],
        ["/bin/sh", "~/check"],
        ["env", "A=1", "python3", "missing.py", "--fast"],
        ["sidecar-no-such-program"],
        ["/missing/program"],
    ],
)
def test_a_command_whose_program_or_script_is_missing_is_found_out(
    command: list[str], tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match=r"no (file|program)"):
        locate(command, tmp_path, os.defpath)


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "/missing/program; true"],
        ["sh", "-c", "true", "/missing/argument"],
        ["sh", "there.sh", "/missing/output.js"],
        ["env", "touch", "/missing/marker"],
        ["env", "curl", "https://host/app.js", "--config=x.js", "*.py"],
        ["sed", "s/a/b/"],
    ],
)
def test_words_that_are_no_scripts_may_be_missing(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "there.sh").touch()
    assert locate(command, tmp_path, os.defpath).startswith("/")


def test_a_program_in_a_relative_directory_of_path_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted").write_text("#!/bin/sh\n")
    (tmp_path / "planted").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError):
        locate(["planted"], tmp_path, ".")


def test_a_matcher_is_patterns_with_bars_between_them() -> None:
    assert matches("", "bash") and matches("*", "bash") and matches("", "")
    assert matches("bash | edit_*", "edit_file")
    assert not matches("bash|edit_*", "read_file")
    assert not matches("bash", "bash_2")


def test_exit_2_denies_with_what_is_on_stderr() -> None:
    said = understand("PreToolUse", 2, b"ignored", b"\x1b[31mno rm here\n\xff")
    assert said == HookOutcome("deny", "no rm here\n\ufffd")


@pytest.mark.parametrize(
    ("event", "answer", "outcome"),
    [
        ("PreToolUse", " \n", HookOutcome()),
        ("PreToolUse", "{}", HookOutcome()),
        ("PreToolUse", '{"decision": null, "context": "c"}', HookOutcome(context="c")),
        ("PreToolUse", '{"decision":"ask","reason":"r"}', HookOutcome("ask", "r")),
        ("PreToolUse", '{"updated_input":{"a":1}}', HookOutcome(updated_input={"a": 1})),
        ("Stop", '{"decision":"block","reason":"go on"}', HookOutcome("deny", "go on")),
    ],
)
def test_exit_0_says_it_in_json(event: str, answer: str, outcome: HookOutcome) -> None:
    assert understand(event, 0, answer.encode(), b"chatter") == outcome


@pytest.mark.parametrize(
    ("event", "code", "stdout", "complaint"),
    [
        ("PreToolUse", 1, "", "exit 1: trace"),
        ("PreToolUse", -9, "", "ended by signal 9"),
        ("PreToolUse", 0, "3 files formatted", "stdout is for JSON alone"),
        ("PreToolUse", 0, '["deny"]', "stdout is for JSON alone"),
        ("PreToolUse", 0, '{"decision":"no"}', "decision"),
        ("PreToolUse", 0, '{"permissionDecision":"deny"}', "permissionDecision"),
        ("PreToolUse", 0, '{"updated_input":{"a":NaN}}', "updated_input"),
        ("PreToolUse", 0, '{"updated_input":{"a":"\\ud800"}}', "JSON"),
        ("PreToolUse", 0, '{"updated_input":' + "[" * 5000, "JSON"),
        ("Stop", 0, '{"decision":"ask"}', "only a PreToolUse hook"),
        ("PostToolUse", 0, '{"updated_input":{}}', "only a PreToolUse hook"),
    ],
)
def test_what_makes_no_sense_is_a_failure(
    event: str, code: int, stdout: str, complaint: str
) -> None:
    with pytest.raises(HookFailed, match=complaint):
        understand(event, code, stdout.encode(), b"trace")


def test_the_strictest_decision_counts_with_its_reasons_alone() -> None:
    allow, ask = HookOutcome("allow", "fine"), HookOutcome("ask", "sure?", context="c1")
    deny, other = HookOutcome("deny", "no"), HookOutcome("deny", "never", context="c2")
    assert combine([allow, HookOutcome()]) == allow
    assert combine([allow, ask]) == ask
    assert combine([deny, allow, other, ask]) == HookOutcome("deny", "no\nnever", None, "c2\nc1")
    assert combine([]) == HookOutcome()


def test_an_agreement_lapses_when_a_later_hook_changes_the_input() -> None:
    allow, deny = HookOutcome("allow", "fine"), HookOutcome("deny", "no")
    change = HookOutcome(updated_input={"a": 1})
    assert combine([allow, change]) == change
    assert combine([change, allow]) == HookOutcome("allow", "fine", {"a": 1})
    assert combine([deny, change]).decision == "deny"
    both = HookOutcome("allow", "so", {"a": 2})
    assert combine([change, both]) == both


def test_texts_of_all_hooks_together_are_bounded() -> None:
    long = HookOutcome("deny", "r" * HOOK_TEXT_CHARS, context="c" * HOOK_TEXT_CHARS)
    both = combine([long, long])
    assert len(both.reason) <= HOOK_TEXT_CHARS
    assert len(both.context) <= HOOK_TEXT_CHARS


class Session:
    """A directory, and hooks that are shell scripts; `left` are processes of theirs alive."""

    def __init__(self, cwd: Path, env: Mapping[str, str] = os.environ) -> None:
        self.cwd = cwd
        self.env = env
        self.id = uuid.uuid4().hex

    def hooks(self, *scripts: str, event: str = "PreToolUse", **more: Any) -> Hooks:
        commands = (("sh", "-c", script) for script in scripts)
        return self.of(*(Hook(event, command, **more) for command in commands))

    def of(self, *hooks: Hook) -> Hooks:
        return Hooks(hooks, self.cwd, self.env, self.id)

    def left(self) -> list[int]:
        return [process.pid for process in psutil.process_iter() if self._is_mine(process)]

    def _is_mine(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("SIDECAR_SESSION") == self.id
        except psutil.Error:
            return False


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path)


async def test_a_hook_gets_the_event_as_json_in_the_session_s_directory_and_environment(
    tmp_path: Path,
) -> None:
    keys = {"ANTHROPIC_API_KEY": "sk", "SIDECAR_TOKEN": "t", "MINE": "m"}
    session = Session(tmp_path, {**os.environ, **keys})
    hooks = session.hooks("cat > request; env > environ; pwd -P > cwd; umask > mask")
    assert await hooks.fire("PreToolUse", "bash", {"tool_name": "bash"}) == HookOutcome()
    assert json.loads((tmp_path / "request").read_text()) == {
        "session_id": session.id,
        "cwd": str(tmp_path),
        "hook_event_name": "PreToolUse",
        "tool_name": "bash",
    }
    environ = dict(line.split("=", 1) for line in (tmp_path / "environ").read_text().splitlines())
    assert environ["SIDECAR_HOOK_EVENT"] == "PreToolUse"
    assert environ["SIDECAR_SESSION"] == session.id
    assert environ["MINE"] == "m"
    assert not environ.keys() & {"ANTHROPIC_API_KEY", "SIDECAR_TOKEN"}
    assert (tmp_path / "cwd").read_text().strip() == str(tmp_path.resolve())
    assert (tmp_path / "mask").read_text().strip() == "0022"


async def test_only_hooks_of_the_event_that_fit_are_asked(session: Session) -> None:
    hooks = session.of(
        Hook("PreToolUse", ("sh", "-c", DENY), "edit_*"),
        Hook("PostToolUse", ("sh", "-c", DENY)),
    )
    assert await hooks.fire("PreToolUse", "bash", {}) == HookOutcome()
    assert (await hooks.fire("PreToolUse", "edit_file", {})).decision == "deny"


async def test_a_later_hook_sees_the_input_that_an_earlier_one_wrote(session: Session) -> None:
    rewrite = shlex.quote(json.dumps({"updated_input": {"command": "ls"}}))
    judge = """grep -q '"command": "ls"' || exit 1; echo '{"decision": "allow"}'"""
    outcome = await session.hooks(f"echo {rewrite}", judge).fire(
        "PreToolUse", "bash", {"tool_input": {"command": "rm -rf x"}}
    )
    assert outcome.updated_input == {"command": "ls"}
    assert (outcome.decision, outcome.failures) == ("allow", ())


async def test_a_deny_without_a_word_names_the_hook(session: Session) -> None:
    outcome = await session.hooks("exit 2").fire("PreToolUse", "bash", {})
    assert outcome.reason == "PreToolUse hook `sh -c 'exit 2'` gave no reason"


async def test_two_lines_to_dev_stderr_are_two_lines(session: Session) -> None:
    script = "echo one > /dev/stderr; echo two > /dev/stderr; exit 2"
    assert (await session.hooks(script).fire("PreToolUse", "bash", {})).reason == "one\ntwo"


async def test_a_script_that_is_missing_blocks_nothing_and_is_told_of(session: Session) -> None:
    hooks = session.of(Hook("PreToolUse", (sys.executable, "missing.py"), source="project"))
    (problem,) = hooks.problems()
    assert re.fullmatch(r"PreToolUse hook `.*` \(project\): no file 'missing.py';.*", problem)
    outcome = await hooks.fire("PreToolUse", "bash", {})
    assert (outcome.decision, outcome.failures) == (None, (problem,))


async def test_a_broken_hook_that_must_agree_denies(session: Session) -> None:
    hooks = session.of(Hook("PreToolUse", ("/missing/program",), on_error="deny"))
    outcome = await hooks.fire("PreToolUse", "bash", {})
    assert (outcome.decision, outcome.failures) == ("deny", (outcome.reason,))
    assert "no program '/missing/program'" in outcome.reason


async def test_a_broken_hook_never_counts_as_agreement(session: Session) -> None:
    hooks = session.hooks("""echo '{"decision": "allow"}'; exit 1""", on_error="allow")
    outcome = await hooks.fire("PreToolUse", "bash", {})
    assert (outcome.decision, outcome.reason) == (None, "")
    assert "exit 1" in outcome.failures[0]


async def test_a_failure_is_told_once_and_again_after_the_hook_has_worked(
    session: Session,
) -> None:
    hooks = session.hooks("test -e works")
    told = [bool((await hooks.fire("PreToolUse", "bash", {})).failures) for _ in range(2)]
    (session.cwd / "works").touch()
    told.append(bool((await hooks.fire("PreToolUse", "bash", {})).failures))
    (session.cwd / "works").unlink()
    told.append(bool((await hooks.fire("PreToolUse", "bash", {})).failures))
    assert told == [True, False, False, True]


async def test_a_program_the_kernel_refuses_is_a_failure(session: Session) -> None:
    program = session.cwd / "check"
    program.write_bytes(b"\x7fELF no program")
    program.chmod(0o755)
    outcome = await session.of(Hook("PreToolUse", (str(program),))).fire("PreToolUse", "bash", {})
    assert "Exec format error" in outcome.failures[0]


async def test_a_directory_that_is_gone_is_a_failure(tmp_path: Path) -> None:
    outcome = await Session(tmp_path / "gone").hooks("true").fire("PreToolUse", "bash", {})
    assert "No such file or directory" in outcome.failures[0]


async def test_a_large_input_does_not_hold_up_a_hook_that_reads_none_of_it(
    session: Session,
) -> None:
    large = {"tool_input": {"content": "x" * 4 * MIB}}
    assert (await session.hooks(DENY).fire("PreToolUse", "bash", large)).reason == "no"
    count = await session.hooks("wc -c >&2; exit 2").fire("PreToolUse", "bash", large)
    assert int(count.reason) > 4 * MIB


async def test_much_on_both_outputs_is_taken_and_shortened_for_the_model(
    session: Session,
) -> None:
    much = f"head -c {512 * KIB} /dev/zero | tr '\\0' x"
    outcome = await session.hooks(f"{much}; {much} >&2; exit 2").fire("PreToolUse", "bash", {})
    assert outcome.decision == "deny"
    assert HOOK_TEXT_CHARS // 2 < len(outcome.reason) <= HOOK_TEXT_CHARS


@pytest.mark.parametrize(
    "flood", ["yes", "yes >&2", "yes & wait", f"head -c {2 * HOOK_OUTPUT_BYTES} /dev/zero"]
)
async def test_a_flood_ends_the_hook_with_all_its_processes(session: Session, flood: str) -> None:
    outcome = await session.hooks(flood).fire("PreToolUse", "bash", {})
    assert "more than 1MB of output" in outcome.failures[0]
    assert session.left() == []


async def test_a_hook_that_takes_too_long_is_ended_with_its_children(session: Session) -> None:
    hooks = session.hooks("sleep 300 & sleep 300", timeout_s=0.2, on_error="deny")
    outcome = await hooks.fire("PreToolUse", "bash", {})
    assert outcome.decision == "deny"
    assert "timed out after 0.2s" in outcome.reason
    assert session.left() == []


async def test_what_a_hook_leaves_behind_holds_nothing_up_and_is_ended(session: Session) -> None:
    outcome = await session.hooks(f"sleep 300 & {DENY}").fire("PreToolUse", "bash", {})
    assert outcome.reason == "no"
    assert session.left() == []


async def test_a_process_that_left_the_group_holds_nothing_up(session: Session) -> None:
    (session.cwd / "leave.py").write_text(
        "import os, time\nos.setsid()\nprint(os.getpid(), file=open('gone', 'w'))\ntime.sleep(300)"
    )
    script = f"{sys.executable} leave.py & until test -s gone; do sleep 0.01; done; {DENY}"
    outcome = await session.hooks(script).fire("PreToolUse", "bash", {})
    (pid,) = session.left()
    os.kill(pid, signal.SIGKILL)
    assert outcome.reason == "no"


async def test_a_cancellation_ends_the_hook_with_its_children(session: Session) -> None:
    started = session.cwd / "started"
    os.mkfifo(started)
    hooks = session.hooks(f"sleep 300 & echo > {started}; sleep 300")
    async with asyncio.timeout(60):
        firing = asyncio.create_task(hooks.fire("PreToolUse", "bash", {}))
        await asyncio.to_thread(started.read_text)
        firing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await firing
    assert session.left() == []


async def test_hooks_of_parallel_calls_do_not_share_anything(session: Session) -> None:
    hooks = session.hooks("cat >&2; exit 2")
    outcomes = await asyncio.gather(
        *(hooks.fire("PreToolUse", "bash", {"tool_use_id": n}) for n in range(4))
    )
    assert [json.loads(outcome.reason)["tool_use_id"] for outcome in outcomes] == list(range(4))
