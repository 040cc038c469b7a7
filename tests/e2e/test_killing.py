"""However nasty its children: when a session has ended, nothing of it lives.

Killed are, in turn: nobody (a destroy), the worker, the shim, and daemon and shim together.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import nasty
from tests.support.bash_bench import linux
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint
from tests.support.processes import eventually, is_alive

pytestmark = linux

ALL = ",".join(nasty.KINDS)
MARKED = ",".join(kind for kind in nasty.KINDS if kind != "bare")
"""Those that a new daemon can know: an orphan without environment is nobody's any more once
daemon and shim are both gone (supervision.md §b); only a cgroup would still name it."""

each_kind = pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(ALL, id="all"),
        *(pytest.param(kind, marks=pytest.mark.soak) for kind in nasty.KINDS),
    ],
)
"""All at once is the hardest; each alone, in `make soak`, says which one got away."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "nasty"
    path.mkdir()
    return path


def start(info: dict[str, Any], kinds: str, folder: Path) -> None:
    """Have the session's bash tool run these kinds; the run goes on until they end."""
    Endpoint(info).prompt(f"run `{nasty.command(kinds, folder)}`", "async")
    eventually(lambda: nasty.are_ready(kinds, folder), "all of them are as nasty as they get")
    assert nasty.survivors(folder)


def destroy(daemon: Daemon, info: dict[str, Any]) -> dict[str, Any]:
    return daemon.call("session.destroy", session_id=info["session_id"], grace_s=0.2)


@each_kind
def test_destroy_answers_when_nothing_is_left(
    daemon: Daemon, work: Path, folder: Path, kinds: str
) -> None:
    info = daemon.create(work)
    start(info, kinds, folder)
    assert destroy(daemon, info)["state"] == "exited"
    assert nasty.survivors(folder) == {}


@each_kind
def test_a_killed_worker_leaves_nothing(
    daemon: Daemon, work: Path, folder: Path, kinds: str
) -> None:
    info = daemon.create(work)
    start(info, kinds, folder)
    os.kill(info["pid"], signal.SIGKILL)
    eventually(lambda: not nasty.survivors(folder), "what the worker had started is gone")


@each_kind
def test_a_killed_shim_leaves_nothing(daemon: Daemon, work: Path, folder: Path, kinds: str) -> None:
    info = daemon.create(work)
    start(info, kinds, folder)
    os.kill(info["shim_pid"], signal.SIGKILL)
    eventually(lambda: not nasty.survivors(folder), "what the session had started is gone")


def test_a_session_whose_shim_was_just_killed_is_destroyed_only_when_nothing_is_left(
    daemon: Daemon, work: Path, folder: Path
) -> None:
    info = daemon.create(work)
    start(info, ALL, folder)
    os.kill(info["shim_pid"], signal.SIGKILL)
    assert destroy(daemon, info)["state"] == "exited"
    assert nasty.survivors(folder) == {}


def test_a_new_daemon_ends_what_a_killed_daemon_and_shim_left_before_it_answers(
    own_daemon: Daemon, work: Path, folder: Path
) -> None:
    info = own_daemon.create(work)
    start(info, MARKED, folder)
    own_daemon.kill()
    os.kill(info["shim_pid"], signal.SIGKILL)
    assert nasty.survivors(folder)
    own_daemon.start()
    assert nasty.survivors(folder) == {}
    assert own_daemon.call("session.status", session_id=info["session_id"])["state"] == "lost"
    destroy(own_daemon, info)


@pytest.mark.soak
def test_a_new_daemon_ends_what_an_adopted_shim_leaves(
    own_daemon: Daemon, work: Path, folder: Path
) -> None:
    info = own_daemon.create(work)
    start(info, MARKED, folder)
    own_daemon.kill()
    own_daemon.start()
    os.kill(info["shim_pid"], signal.SIGKILL)
    assert destroy(own_daemon, info)["state"] == "exited"
    assert nasty.survivors(folder) == {}


@pytest.mark.soak
def test_sessions_that_the_daemon_inherits_from_a_dead_zygote_are_no_orphans(
    own_daemon: Daemon, work: Path, folder: Path
) -> None:
    killed, other = own_daemon.create(work), own_daemon.create(work)
    start(killed, ALL, folder)
    os.kill(own_daemon.call("sidecar.status")["zygote"]["pid"], signal.SIGKILL)
    this = psutil.Process(own_daemon.call("sidecar.status")["pid"])
    eventually(lambda: psutil.Process(other["shim_pid"]).ppid() == this.pid, "it is inherited")
    os.kill(killed["shim_pid"], signal.SIGKILL)
    assert destroy(own_daemon, killed)["state"] == "exited"
    assert nasty.survivors(folder) == {}
    assert Endpoint(other).prompt("list the files here")["status"] == "completed"
    destroy(own_daemon, other)
    eventually(
        lambda: all(is_alive(child.pid) for child in this.children()),
        "the daemon has collected the dead it inherited",
    )
