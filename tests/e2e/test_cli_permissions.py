"""Permission questions at a real terminal, and where there is none."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import RUN_S, Cli
from tests.support.daemon import Daemon, environment
from tests.support.processes import eventually
from tests.support.scripted import FINE, Reply, bash, scripted_session

TOUCH = "run `touch made`"


class Terminal:
    """A command at a terminal of its own; `seen` is all that the terminal was sent."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.seen = ""
        self._process = process
        self._master = master
        self._read = 0

    def sees(self, text: str) -> None:
        """Until `text` comes, after what was waited for before."""
        until = time.monotonic() + RUN_S
        while (found := self.seen.find(text, self._read)) < 0:
            assert self._more(until), f"ended before it said {text!r}: {self.seen}"
        self._read = found + len(text)

    def types(self, text: str) -> None:
        os.write(self._master, text.encode())

    def chooses(self, name: str) -> None:
        """The option whose name starts so."""
        self.sees("answer 1-")
        keys = re.findall(rf"^  (\d)  {name}", self.seen, re.MULTILINE)
        self.types(f"{keys[-1]}\n")

    def ends(self) -> int:
        """The exit code."""
        until = time.monotonic() + RUN_S
        while self._more(until):
            pass
        return self._process.wait(RUN_S)

    def _more(self, until: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], until - time.monotonic())
        assert ready, f"silent after: {self.seen}"
        try:
            chunk = os.read(self._master, 65536)
        except OSError:  # nobody has the terminal open any more
            return False
        self.seen += chunk.decode(errors="replace").replace("\r\n", "\n")
        return bool(chunk)


@contextmanager
def at_terminal(cli: Cli, *args: str) -> Generator[Terminal]:
    master, slave = os.openpty()
    # a session leader that opens a terminal gets it for its own: Ctrl-C works
    opening = ["sh", "-c", 'exec "$@" <>"$0" >&0 2>&0', os.ttyname(slave)]
    process = subprocess.Popen(
        [*opening, *cli.argv(*args, "--color", "never")],
        stdin=slave,
        env=environment(cli.home),
        cwd=cli.cwd,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


@pytest.fixture
def session(daemon: Daemon, cli: Cli) -> Cli:
    """With a session named s."""
    daemon.create(cli.cwd, name="s", mode="ask")
    return cli


def made(cli: Cli) -> bool:
    return (cli.cwd / "made").exists()


def becomes(daemon: Daemon, state: str) -> None:
    """The session s."""
    status = partial(daemon.call, "session.status", session_id="s")
    eventually(lambda: status()["state"] == state, f"it is {state}")


def test_a_person_allows_a_call_that_had_waited_for_it(session: Cli) -> None:
    with at_terminal(session, "prompt", "s", TOUCH) as terminal:
        terminal.sees("permission needed: touch made\n")
        terminal.sees("answer 1-")
        assert not made(session)
        terminal.types("1\n")
        assert terminal.ends() == 0
    assert "permission allowed once: touch made\n" in terminal.seen
    assert made(session)


def test_a_person_rejects_a_call_and_says_why(session: Cli) -> None:
    with at_terminal(session, "prompt", "s", TOUCH) as terminal:
        terminal.chooses("Reject$")
        terminal.sees("why, in a line")
        terminal.types("use the other one\n")
        assert terminal.ends() == 0
    assert not made(session)
    assert "Reason: use the other one" in session.ok("transcript", "s")


def test_nothing_but_a_choice_typed_after_the_question_is_an_answer(session: Cli) -> None:
    with at_terminal(session, "prompt", "s", TOUCH) as terminal:
        terminal.types("1\n")
        for nothing in ("\n", "\x1b\n", "9\n", "yes\n"):
            terminal.sees("answer 1-")
            terminal.types(nothing)
            terminal.sees("nothing was chosen")
        assert not made(session)
        terminal.chooses("Allow once")
        assert terminal.ends() == 0
    assert made(session)


def test_a_question_that_another_client_answers_is_withdrawn(session: Cli) -> None:
    with at_terminal(session, "prompt", "s", TOUCH) as terminal:
        terminal.sees("answer 1-")
        session.ok("permissions", "answer", "s", "once")
        terminal.sees("withdrawn")
        assert terminal.ends() == 0
    assert made(session)


def test_ctrl_c_at_a_question_cancels_the_run(session: Cli) -> None:
    with at_terminal(session, "prompt", "s", TOUCH) as terminal:
        terminal.sees("answer 1-")
        terminal.types("\x03")
        assert terminal.ends() == 130
    assert session.json("session", "show", "s")["last_result"]["stop_reason"] == "cancelled"
    assert not made(session)


def test_a_question_of_a_worker_that_crashed_is_withdrawn(session: Cli, daemon: Daemon) -> None:
    with at_terminal(session, "prompt", "s", TOUCH) as terminal:
        terminal.sees("answer 1-")
        os.kill(daemon.call("session.status", session_id="s")["pid"], signal.SIGKILL)
        terminal.sees("withdrawn")
        assert terminal.ends() == 0
    assert not made(session)


def test_questions_at_once_are_asked_one_after_another(session: Cli, tmp_path: Path) -> None:
    """In either order: calls that only read are judged at the same time."""
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"this is {name}")
    prompt = f"read {tmp_path / 'one'} and read {tmp_path / 'two'}"
    with at_terminal(session, "prompt", "s", prompt) as terminal:
        for _ in ("one", "two"):
            terminal.sees("\noutside the session's directories: ")
            terminal.chooses("Allow once")
        assert terminal.ends() == 0
    for name in ("one", "two"):
        assert terminal.seen.count(f"\noutside the session's directories: {tmp_path / name}\n") == 1
        assert f"this is {name}" in terminal.seen


def test_a_question_stored_cut_is_asked_whole(daemon: Daemon, cli: Cli) -> None:
    command = f"touch made # {'x' * 30_000}"
    params: dict[str, Any] = {"name": "s", "mode": "ask", "ring_bytes": 65536}
    with scripted_session(daemon, cli.cwd, **params) as scripted:
        scripted.answers.extend([Reply([bash(command)]), FINE])
        with at_terminal(cli, "prompt", "s", "go") as terminal:
            terminal.sees(f"  … {len(command) - 8_000} more characters")
            terminal.chooses("Allow once")
            assert terminal.ends() == 0
    assert made(cli)


def test_a_command_shows_what_a_terminal_would_swallow(session: Cli) -> None:
    with at_terminal(session, "prompt", "s", "run `touch a #\x1b]0;\rtouch made\x07`") as terminal:
        terminal.sees("  | touch a #\\x1b]0;\\rtouch made\\x07\n")
        terminal.chooses("Reject$")
        terminal.types("\n")
        assert terminal.ends() == 0
    assert "\x1b" not in terminal.seen
    assert "\x07" not in terminal.seen


@pytest.mark.parametrize("args", [("prompt", "s"), ("run", "--mode", "ask")])
def test_where_nobody_can_be_asked_a_call_is_rejected(session: Cli, args: tuple[str, ...]) -> None:
    done = session(*args, TOUCH, "-o", "json")
    assert done.returncode == 5
    assert json.loads(done.stdout)["stop_reason"] == "final_answer"
    tried = done.stderr.splitlines()[-1]
    assert tried.startswith('try: [permissions] allow = ["bash(touch ')
    assert str(session.home / "config.toml") in tried
    assert not made(session)


def test_a_person_may_want_no_questions(session: Cli) -> None:
    with at_terminal(session, "--no-input", "prompt", "s", TOUCH) as terminal:
        assert terminal.ends() == 5
    assert "rejected: touch made (nobody is at the terminal of sidecarctl)" in terminal.seen
    with at_terminal(session, "prompt", "s", TOUCH) as terminal:
        terminal.sees("answer 1-")
        terminal.types("\x04")
        assert terminal.ends() == 5
    assert not made(session)


def test_a_question_that_nobody_awaits_is_answered_from_elsewhere(
    session: Cli, daemon: Daemon
) -> None:
    session.ok("prompt", "s", "--no-wait", TOUCH)
    becomes(daemon, "waiting")
    (asked,) = session.json("permissions", "ls", "s")["pending"]
    listed = session.ok("permissions", "ls", "s")
    assert listed.startswith(asked["request_id"])
    assert re.search("\n  once +Allow once\n", listed)
    answer, name = partial(session, "permissions", "answer", "s"), asked["request_id"][:4]
    assert answer("0000", "once").returncode == 2
    answered = answer(name, "reject", "--reason", "not now")
    assert (answered.returncode, answered.stdout) == (0, f"{asked['request_id']}\n")
    becomes(daemon, "idle")
    assert "Reason: not now" in session.ok("transcript", "s")
    assert answer("once").returncode == 2


def test_what_is_always_allowed_in_a_project_can_be_seen_and_forgotten(
    session: Cli, daemon: Daemon
) -> None:
    session.ok("prompt", "s", "--no-wait", TOUCH)
    becomes(daemon, "waiting")
    session.ok("permissions", "answer", "s", "-", "project")
    becomes(daemon, "idle")
    _, *rules = session.ok("permissions", "rules").splitlines()
    assert rules
    session.ok("prompt", "s", "run `touch again`")
    for rule in rules:
        session.ok("permissions", "forget", ".", rule)
    assert session.json("permissions", "rules", ".")["rules"] == []
    assert session("prompt", "s", "run `touch again`").returncode == 5


def test_a_question_of_the_run_it_steers_is_left_to_others(daemon: Daemon, cli: Cli) -> None:
    with scripted_session(daemon, cli.cwd, name="s", mode="ask") as scripted:
        scripted.start(Reply([bash("touch a")]), Reply([bash("touch made")]), FINE)
        becomes(daemon, "waiting")
        with cli.start("prompt", "s", "--steer", "go on") as steering:
            eventually(lambda: "go on" in cli.ok("transcript", "s", "-o", "jsonl"), "accepted")
            cli.ok("permissions", "answer", "s", "once")
            assert steering.stderr is not None
            assert any("waits for a permission: touch made" in line for line in steering.stderr)
            cli.ok("permissions", "answer", "s", "once")
            assert steering.wait(RUN_S) == 0
    assert made(cli)
