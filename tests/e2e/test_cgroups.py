"""With a delegated control group (v2) each session has its own, and nothing evades it.

The group is made here, marked as systemd marks that of a system unit with `Delegate=yes`. Without
the right to do so these tests are skipped, and those for a controller where the system has it not.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sidecar.protocol import cgroup
from sidecar.protocol.bounds import MIB
from tests.support import nasty
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint
from tests.support.processes import eventually

ALL = ",".join(nasty.KINDS)


def mount() -> Path | None:
    """Where the version 2 hierarchy is."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return None
    return next((Path(place) for _, place, kind, *_ in mounts if kind == "cgroup2"), None)


@pytest.fixture
def delegated() -> Iterator[Path]:
    """A group of our own, gone afterwards with all that was in it."""
    top = mount()
    if top is None:
        pytest.skip("no version 2 control groups here")
    group = top / f"sidecar-test-{secrets.token_hex(4)}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group may be made here: {error}")
    try:
        for controller in (top / "cgroup.controllers").read_text().split():
            (top / "cgroup.subtree_control").write_text(f"+{controller}")
        os.setxattr(group, "user.delegate", b"1")
        yield group
        left = [path.name for path in group.iterdir() if path.is_dir()]
        assert not [name for name in left if name.startswith("s-")], "gone with its session"
    finally:
        cgroup.kill(str(group))
        eventually(lambda: not cgroup.is_populated(str(group)), "it is empty")
        cgroup.remove(str(group))
    assert not group.exists()


@pytest.fixture
def in_group(home: Path, delegated: Path) -> Iterator[Daemon]:
    daemon = Daemon(home)
    start(daemon, delegated)
    yield daemon
    if daemon.process is None:
        start(daemon, delegated)
    daemon.call("sidecar.shutdown", stop_sessions=True)
    daemon.terminate()
    eventually(lambda: not members(delegated / "daemon"), "the daemon's children have ended")


def start(daemon: Daemon, group: Path) -> None:
    """As a manager starts it: in the leaf of the delegated group."""
    daemon.start(preexec=f"mkdir -p {group}/daemon && echo $$ > {group}/daemon/cgroup.procs")


def members(group: Path) -> set[int]:
    return set(map(int, (group / "cgroup.procs").read_text().split())) if group.exists() else set()


def group_of(delegated: Path, info: dict[str, Any]) -> Path:
    return delegated / f"s-{info['session_id']}"


def session_with(kinds: str, daemon: Daemon, work: Path, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    info = daemon.create(work)
    Endpoint(info).prompt(f"run `{nasty.command(kinds, folder)}`", "async")
    eventually(lambda: nasty.are_ready(kinds, folder), "all of them are as nasty as they get")
    return info


@pytest.mark.soak
def test_worker_and_tools_are_in_the_sessions_group_daemon_and_shim_in_the_daemons(
    in_group: Daemon, delegated: Path, work: Path
) -> None:
    info = in_group.create(work)
    Endpoint(info).prompt("run `sleep 60 & echo $! > pid`")
    tool = int((work / "pid").read_text())
    assert members(group_of(delegated, info)) == {info["pid"], tool}
    assert in_group.process is not None
    assert members(delegated / "daemon") >= {in_group.process.pid, info["shim_pid"]}
    assert members(delegated) == set()


def test_destroy_leaves_neither_process_nor_group(
    in_group: Daemon, delegated: Path, work: Path, tmp_path: Path
) -> None:
    info = session_with(ALL, in_group, work, tmp_path / "nasty")
    ended = in_group.call("session.destroy", session_id=info["session_id"], grace_s=0.2)
    assert ended["exit"]["reason"] == "destroyed"
    assert nasty.survivors(tmp_path / "nasty") == {}
    assert not group_of(delegated, info).exists()


@pytest.mark.soak
def test_a_new_daemon_finds_even_an_orphan_without_an_environment(
    in_group: Daemon, delegated: Path, work: Path, tmp_path: Path
) -> None:
    info = session_with(ALL, in_group, work, tmp_path / "nasty")
    in_group.kill()
    os.kill(info["shim_pid"], signal.SIGKILL)
    start(in_group, delegated)
    assert nasty.survivors(tmp_path / "nasty") == {}
    assert in_group.call("session.status", session_id=info["session_id"])["state"] == "lost"
    assert not group_of(delegated, info).exists()


@pytest.mark.soak
def test_a_daemon_that_is_started_elsewhere_still_ends_what_is_in_a_sessions_group(
    in_group: Daemon, work: Path, tmp_path: Path, delegated: Path
) -> None:
    info = session_with("bare", in_group, work, tmp_path / "nasty")
    in_group.kill()
    os.kill(info["shim_pid"], signal.SIGKILL)
    in_group.start()
    assert nasty.survivors(tmp_path / "nasty") == {}
    resumed = in_group.call("session.resume", session_id=info["session_id"])
    assert resumed["state"] == "idle"
    assert not group_of(delegated, info).exists(), "that daemon has no group to give"


@pytest.mark.soak
def test_a_restarted_worker_and_a_resumed_session_are_in_the_group_again(
    in_group: Daemon, delegated: Path, work: Path
) -> None:
    info = in_group.create(work)
    os.kill(info["pid"], signal.SIGKILL)
    assert Endpoint(info).prompt("list the files here")["status"] == "completed"
    again = in_group.call("session.status", session_id=info["session_id"])
    assert again["restarts"] == 1
    assert members(group_of(delegated, info)) == {again["pid"]}
    in_group.call("session.destroy", session_id=info["session_id"])
    resumed = in_group.call("session.resume", session_id=info["session_id"])
    assert members(group_of(delegated, info)) == {resumed["pid"]}


@pytest.mark.soak
def test_a_sleeper_whose_empty_group_was_cleared_away_wakes_in_a_new_one(
    in_group: Daemon, delegated: Path, work: Path
) -> None:
    info = in_group.create(work, idle_timeout_s=1)

    def status() -> dict[str, Any]:
        return in_group.call("session.status", session_id=info["session_id"])

    eventually(lambda: status()["state"] == "sleeping", "it sleeps")
    group_of(delegated, info).rmdir()
    assert Endpoint(info).prompt("list the files here")["status"] == "completed"
    assert status()["pid"] in members(group_of(delegated, info))


@pytest.mark.soak
@pytest.mark.parametrize("leaf", ["daemon", "other"])
def test_a_group_without_the_mark_of_delegation_or_the_leaf_of_a_daemon_is_left_alone(
    home: Path, delegated: Path, work: Path, leaf: str
) -> None:
    if leaf == "daemon":
        os.removexattr(delegated, "user.delegate")
    own = delegated / leaf
    own.mkdir()
    daemon = Daemon(home)
    daemon.start(preexec=f"echo $$ > {own}/cgroup.procs")
    info = daemon.create(work)
    try:
        assert [path for path in delegated.iterdir() if path.is_dir()] == [own]
        assert info["pid"] in members(own)
    finally:
        daemon.call("sidecar.shutdown", stop_sessions=True)
        daemon.terminate()


@pytest.mark.parametrize(
    ("controller", "limits", "command", "reason"),
    [
        (
            "memory",
            {"memory_bytes": 128 * MIB},
            "python3 -c \"x = b'a' * (400 << 20)\"; sleep 60",
            "memory_limit",
        ),
        (
            "pids",
            {"processes": 8},
            "for i in $(seq 500); do sleep 60 & done; wait",
            "process_limit",
        ),
    ],
)
def test_the_kernel_holds_a_limit_between_two_looks_of_the_watch(
    in_group: Daemon,
    delegated: Path,
    work: Path,
    controller: str,
    limits: dict[str, int],
    command: str,
    reason: str,
) -> None:
    if controller not in (delegated / "cgroup.controllers").read_text().split():
        pytest.skip(f"the {controller} controller is not on version 2 here")
    info, neighbour = in_group.create(work, limits=limits), in_group.create(work)

    def status() -> dict[str, Any]:
        return in_group.call("session.status", session_id=info["session_id"])

    assert status()["limits"]["enforced_by"] == {next(iter(limits)): "cgroup+watch"}
    Endpoint(info).prompt(f"run `{command}`", "async")
    eventually(lambda: status()["state"] == "failed", "the session has failed")
    assert status()["exit"]["reason"] == reason
    assert psutil.pid_exists(neighbour["pid"])
    assert Endpoint(neighbour).prompt("list the files here")["status"] == "completed"
