"""Limits end the session that exceeds them, by name, and nobody else (docs/limits.md).

Every hog is bounded in size and ends by itself within a minute.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sidecar.protocol.bounds import LIMIT_MEMORY_MIN_BYTES, MIB
from tests.support.control import CallFailed
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint
from tests.support.processes import eventually, is_alive

HOLD = "python3 -c \"import time; x = b'a' * ({mib} << 20); time.sleep(60)\""
BURN = "timeout 60 sh -c 'while :; do :; done'"


def status(daemon: Daemon, info: dict[str, Any]) -> dict[str, Any]:
    return daemon.call("session.status", session_id=info["session_id"])


def ended(daemon: Daemon, info: dict[str, Any]) -> dict[str, Any]:
    return eventually(
        lambda: (s := status(daemon, info))["state"] == "failed" and s, "the session has failed"
    )


@pytest.mark.parametrize(
    ("limits", "command", "reason"),
    [
        ({"memory_bytes": 128 * MIB}, HOLD.format(mib=200), "memory_limit"),
        (
            {"memory_bytes": 128 * MIB},
            f"for i in 1 2 3; do {HOLD.format(mib=60)} & done; wait",
            "memory_limit",
        ),
        ({"processes": 20}, "for i in $(seq 60); do sleep 60 & done; wait", "process_limit"),
        pytest.param({"cpu_s": 2}, BURN, "cpu_limit", marks=pytest.mark.soak),
        (
            {"cpu_s": 2},
            "for i in $(seq 200); do timeout 0.1 sh -c 'while :; do :; done'; done; sleep 60",
            "cpu_limit",
        ),
    ],
    ids=["one-hog", "many-small-hogs", "processes", "one-burner", "burners-that-ended"],
)
def test_a_session_over_a_limit_fails_by_its_name_and_its_neighbour_lives(
    daemon: Daemon, work: Path, limits: dict[str, float], command: str, reason: str
) -> None:
    neighbour = daemon.create(work, limits=limits)
    hog = daemon.create(work, limits=limits)
    Endpoint(hog).prompt(f"run `{command}`", "async")
    failed = ended(daemon, hog)
    assert failed["exit"]["reason"] == reason
    assert (failed["pid"], failed["run"]) == (None, None)
    assert not is_alive(hog["pid"])
    assert not Path(hog["endpoint"]["socket"]).exists()
    assert Endpoint(neighbour).prompt("list the files here")["status"] == "completed"
    assert status(daemon, neighbour)["pid"] == neighbour["pid"]


def test_what_a_run_left_behind_counts_too(daemon: Daemon, work: Path) -> None:
    hog = daemon.create(work, limits={"processes": 5})
    run = Endpoint(hog).prompt("run `for i in $(seq 10); do sleep 60 & done`", "async")
    assert run["run_id"]
    assert ended(daemon, hog)["exit"]["reason"] == "process_limit"


@pytest.mark.skipif(sys.platform != "linux", reason="rlimits on memory are Linux's")
def test_a_process_that_asks_for_far_too_much_at_once_is_refused_and_the_session_lives(
    daemon: Daemon, work: Path
) -> None:
    info = daemon.create(work, limits={"memory_bytes": LIMIT_MEMORY_MIN_BYTES})
    run = Endpoint(info).prompt("run `python3 -c \"x = b'a' * (1 << 30)\"`")
    assert "MemoryError" in run["result"]["final_text"]
    assert Endpoint(info).prompt("list the files here")["status"] == "completed"
    eventually(lambda: status(daemon, info)["state"] == "idle", "and waits for more")


def test_tools_of_every_session_dump_no_core_unless_they_ask(daemon: Daemon, work: Path) -> None:
    run = daemon.session(work).prompt("run `echo core is $(ulimit -S -c)`")
    assert "core is 0" in run["result"]["final_text"]


def test_a_session_within_its_limits_works_and_its_status_says_how_they_are_kept(
    daemon: Daemon, work: Path
) -> None:
    limits = {"memory_bytes": LIMIT_MEMORY_MIN_BYTES, "processes": 50, "cpu_s": 60}
    info = daemon.create(work, limits=limits)
    assert info["limits"] == limits
    assert Endpoint(info).prompt("run `sleep 2`")["status"] == "completed"
    memory = "rlimit+watch" if sys.platform == "linux" else "watch"
    enforced = {"memory_bytes": memory, "processes": "watch", "cpu_s": "watch"}
    assert status(daemon, info)["limits"] == limits | {"enforced_by": enforced}
    assert status(daemon, daemon.create(work))["limits"] == {"enforced_by": {}}


@pytest.mark.skipif(sys.platform != "linux", reason="oom_score_adj is Linux's")
@pytest.mark.parametrize("spawn", ["fork", pytest.param("exec", marks=pytest.mark.soak)])
def test_tools_are_the_first_to_go_when_memory_is_short_and_shim_and_daemon_the_last(
    home: Path, own_daemon: Daemon, work: Path, spawn: str
) -> None:
    own_daemon.terminate()
    (home / "config.toml").write_text(f'spawn = "{spawn}"\n')
    own_daemon.start()
    info = own_daemon.create(work)
    script = "tail -f /dev/null & until [ -e go ]; do :; done; kill %1"
    Endpoint(info).prompt(f"run `{script}`", "async")
    worker = psutil.Process(info["pid"])
    eventually(lambda: "tail" in [p.name() for p in worker.children(recursive=True)], "both run")
    base = oom_score(own_daemon.call("sidecar.status")["pid"])
    tools = worker.children(recursive=True)
    pids = [info["shim_pid"], info["pid"], *(process.pid for process in tools)]
    scores = [oom_score(pid) - base for pid in pids]
    (work / "go").touch()
    assert scores == [0, 200, 500, 500]


def oom_score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_one_session_more_than_max_sessions_is_refused(
    home: Path, own_daemon: Daemon, work: Path
) -> None:
    own_daemon.terminate()
    (home / "config.toml").write_text("max_sessions = 1\n")
    own_daemon.start()
    first = own_daemon.create(work)
    with pytest.raises(CallFailed) as refused:
        own_daemon.create(work)
    assert (refused.value.code, refused.value.error["data"]["limit"]) == (
        "limit_reached",
        "max_sessions",
    )
    own_daemon.call("session.destroy", session_id=first["session_id"])
    assert own_daemon.create(work)["state"] == "idle"


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with too little memory for daemon, zygote and a session."""
    group = Path(f"/sys/fs/cgroup/memory/sidecar-test-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(300 * MIB))
    except OSError:
        pytest.skip("needs a memory control group (v1) that we may divide")
    yield group
    with contextlib.suppress(OSError):
        group.rmdir()


def test_a_session_is_refused_before_memory_is_short(
    small_group: Path, own_daemon: Daemon, work: Path
) -> None:
    own_daemon.terminate()
    own_daemon.start(preexec=f"echo $$ > {small_group}/cgroup.procs")
    with pytest.raises(CallFailed) as refused:
        own_daemon.create(work)
    assert (refused.value.code, refused.value.error["data"]["limit"]) == ("limit_reached", "memory")
    assert own_daemon.call("session.list", all=True)["sessions"] == []
