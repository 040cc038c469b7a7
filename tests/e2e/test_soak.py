"""Long fault runs, `make soak`: the daemon is killed at random moments, again and again."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.control import Control
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint
from tests.support.processes import eventually, of_home

ROUNDS = 40
STOPPED_S = 120
"""Longer than every bound between our processes, as a laptop's lid is."""
LEGAL = {"idle", "running", "exited", "failed", "lost"}

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


def test_a_daemon_killed_in_the_middle_of_creates_leaves_whole_sessions_or_none(
    own_daemon: Daemon, work: Path
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    moments = random.Random(seed)
    for _ in range(ROUNDS):
        control = Control(own_daemon.socket)
        for number in range(3):
            params = {"cwd": str(work)}
            control.send(
                {"jsonrpc": "2.0", "id": number, "method": "session.create", "params": params}
            )
        killer = threading.Timer(moments.uniform(0, 0.3), own_daemon.kill)
        killer.start()
        killer.join()
        control.close()
        own_daemon.start()
        for info in settled(own_daemon):
            if info["state"] == "idle":
                assert Endpoint(info).prompt("list the files here")["status"] == "completed"
            own_daemon.call("session.destroy", session_id=info["session_id"], grace_s=1, purge=True)
        eventually(lambda: strays(own_daemon) == set(), "no process but daemon and zygote")
        assert list((own_daemon.home / "run" / "s").iterdir()) == []


def strays(daemon: Daemon) -> set[int]:
    status = daemon.call("sidecar.status")
    ours = {status["pid"], status["zygote"]["pid"]}
    return {process.pid for process in of_home(daemon.home)} - ours


def settled(daemon: Daemon) -> list[dict[str, Any]]:
    """All sessions, once none is in between."""

    def states() -> list[dict[str, Any]] | None:
        sessions = daemon.call("session.list", all=True)["sessions"]
        return [*sessions, {}] if {s["state"] for s in sessions} <= LEGAL else None

    found = eventually(states, "every session is in a legal state")
    return [session for session in found if session]


def test_two_minutes_of_sigstop_end_nothing_put_nothing_to_sleep_and_repeat_no_run(
    own_daemon: Daemon, work: Path
) -> None:
    infos = [own_daemon.create(work, idle_timeout_s=60) for _ in range(2)]
    runs = [
        Endpoint(info).prompt("run `echo once >> log; until [ -e go ]; do sleep 1; done`", "async")
        for info in infos
    ]
    eventually(lambda: (work / "log").exists(), "the tools run")
    assert own_daemon.process is not None
    stopped = [infos[0]["pid"], infos[1]["shim_pid"], own_daemon.process.pid]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(STOPPED_S)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    (work / "go").touch()
    for info, run in zip(infos, runs, strict=True):
        endpoint = Endpoint(info)
        eventually(
            lambda e=endpoint, r=run: e.get(f"/runs/{r['run_id']}")[1]["status"] == "completed",
            "the run goes on",
        )
        after = own_daemon.call("session.status", session_id=info["session_id"])
        assert (after["pid"], after["shim_pid"]) == (info["pid"], info["shim_pid"])
        assert after["restarts"] == 0
    assert (work / "log").read_text() == "once\n" * 2


def test_a_session_whose_shim_does_not_act_is_destroyed_all_the_same(
    own_daemon: Daemon, work: Path
) -> None:
    info = own_daemon.create(work)
    Endpoint(info).prompt("run `trap '' TERM; touch up; while true; do sleep 1; done`", "async")
    eventually((work / "up").exists, "the tool runs")
    os.kill(info["shim_pid"], signal.SIGSTOP)
    ended = own_daemon.call("session.destroy", session_id=info["session_id"], grace_s=0)
    assert ended["state"] == "exited"
    assert strays(own_daemon) == set()
