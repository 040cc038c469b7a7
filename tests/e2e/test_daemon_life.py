"""Daemons come and go; sessions stay."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from sidecar.protocol import bounds
from tests.support.control import CallFailed, Control
from tests.support.daemon import Daemon, refused_daemon
from tests.support.endpoint import Endpoint
from tests.support.processes import all_of_home, eventually, is_alive, of_home


def test_a_stopped_daemon_leaves_its_sessions_working_and_the_next_one_finds_them(
    own_daemon: Daemon, work: Path
) -> None:
    info = own_daemon.create(work, name="stays", tcp=True)
    endpoint = Endpoint(info)
    endpoint.prompt("list the files here")
    own_daemon.terminate()
    assert not own_daemon.socket.exists()
    assert endpoint.prompt("list the files here")["status"] == "completed"
    own_daemon.start()

    def status() -> dict[str, Any]:
        return own_daemon.call("session.status", session_id="stays")

    eventually(lambda: status()["endpoint"]["url"], "the new daemon has the session's word")
    found = status()
    lasting = ("session_id", "name", "pid", "shim_pid", "incarnation", "created_at", "endpoint")
    for unchanged in lasting:
        assert found[unchanged] == info[unchanged]
    assert found["state"] == "idle"
    assert found["last_result"]["stop_reason"] == "final_answer"


def test_a_killed_daemon_changes_nothing_for_a_run_under_way(
    own_daemon: Daemon, work: Path
) -> None:
    info = own_daemon.create(work)
    endpoint = Endpoint(info)
    run = endpoint.prompt("run `until [ -e go ]; do sleep 0.05; done; echo released`", "async")
    own_daemon.kill()
    own_daemon.start()
    (work / "go").touch()
    done = eventually(
        lambda: (r := endpoint.get(f"/runs/{run['run_id']}")[1])["finished_at"] and r,
        "the run has ended",
    )
    assert done["status"] == "completed"
    assert "released" in done["result"]["final_text"]
    numbers = [event["seq"] for event in endpoint.events()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert own_daemon.call("session.status", session_id=info["session_id"])["pid"] == info["pid"]


def test_a_stop_that_had_begun_is_finished_by_the_next_daemon(
    own_daemon: Daemon, work: Path
) -> None:
    info = own_daemon.create(work)
    Endpoint(info).prompt("run `trap '' TERM; while true; do sleep 1; done`", "async")
    own_daemon.control.send(
        {
            "jsonrpc": "2.0",
            "id": 9,
            "method": "session.destroy",
            "params": {"session_id": info["session_id"], "grace_s": 60},
        }
    )
    record = own_daemon.home / "state" / "sessions" / info["session_id"] / "record.json"
    eventually(lambda: '"wanted": "down"' in record.read_text(), "the wish is written down")
    own_daemon.kill()
    own_daemon.start()
    eventually(lambda: not is_alive(info["shim_pid"]), "the session has ended")
    eventually(
        lambda: (
            own_daemon.call("session.status", session_id=info["session_id"])["state"] == "exited"
        ),
        "and the daemon knows",
    )


def test_shutdown_with_sessions_ends_every_process(own_daemon: Daemon, work: Path) -> None:
    for _ in range(3):
        own_daemon.create(work)
    assert own_daemon.call("sidecar.shutdown", stop_sessions=True) == {}
    assert own_daemon.process is not None
    assert own_daemon.process.wait(30) == 0
    eventually(lambda: not of_home(own_daemon.home), "nothing is left")
    own_daemon.terminate()


@pytest.mark.soak
def test_an_ended_session_is_still_shown_by_the_next_daemon(own_daemon: Daemon, work: Path) -> None:
    info = own_daemon.create(work)
    Endpoint(info).prompt("list the files here")
    own_daemon.call("session.destroy", session_id=info["session_id"])
    own_daemon.terminate()
    own_daemon.start()
    shown = own_daemon.call("session.status", session_id=info["session_id"])
    assert (shown["state"], shown["wanted"], shown["exit"]["reason"]) == (
        "exited",
        "down",
        "destroyed",
    )
    assert shown["last_result"]["stop_reason"] == "final_answer"
    output = own_daemon.call("session.output", session_id=info["session_id"])
    assert output["events"][-1]["type"] == "state"


def test_what_is_no_record_is_set_aside_by_name_and_harms_nobody(
    own_daemon: Daemon, work: Path
) -> None:
    kept = own_daemon.create(work)
    own_daemon.terminate()
    sessions = own_daemon.home / "state" / "sessions"
    for name, record in (("torn", "{ torn"), ("list", "[]"), ("future", '{"v": 99}')):
        (sessions / name).mkdir(mode=0o700)
        (sessions / name / "record.json").write_text(record)
    (sessions / "stray.txt").write_text("x")
    own_daemon.start()
    aside = [Path(p) for p in own_daemon.call("sidecar.status")["set_aside"]]
    assert sorted(p.name.split(".")[0] for p in aside) == ["future", "list", "stray", "torn"]
    assert all(p.exists() for p in aside)
    assert [p.name for p in sessions.iterdir()] == [kept["session_id"]]
    assert own_daemon.create(work)["state"] == "idle"


def test_a_create_whose_client_leaves_still_becomes_a_whole_session(
    daemon: Daemon, work: Path
) -> None:
    control = Control(daemon.socket)
    control.send(
        {"jsonrpc": "2.0", "id": 1, "method": "session.create", "params": {"cwd": str(work)}}
    )
    control.close()
    info = eventually(
        lambda: [s for s in daemon.call("session.list")["sessions"] if s["state"] == "idle"],
        "the session is up",
    )[0]
    assert Endpoint(info).prompt("list the files here")["status"] == "completed"


def test_the_same_client_id_gets_the_same_session(daemon: Daemon, work: Path) -> None:
    first = daemon.create(work, client_id="key-1")
    assert daemon.create(work, client_id="key-1")["session_id"] == first["session_id"]
    assert len(daemon.call("session.list")["sessions"]) == 1


def test_a_killed_shim_takes_its_worker_along_and_the_session_is_lost(
    daemon: Daemon, work: Path
) -> None:
    info = daemon.create(work)
    os.kill(info["shim_pid"], signal.SIGKILL)
    eventually(
        lambda: daemon.call("session.status", session_id=info["session_id"])["state"] == "lost",
        "the loss is seen",
    )
    eventually(lambda: not is_alive(info["pid"]), "the worker died with its parent")
    assert daemon.call("session.destroy", session_id=info["session_id"])["state"] == "exited"
    assert list((daemon.home / "run" / "s").iterdir()) == []


def test_a_worker_that_cannot_start_is_a_start_failure_with_its_log(
    own_daemon: Daemon, work: Path
) -> None:
    # the ring wants 256 MiB, and files of this daemon's children end at 1 MiB
    own_daemon.terminate()
    own_daemon.start(preexec="ulimit -f 1024")
    with pytest.raises(CallFailed) as failure:
        own_daemon.create(work, ring_bytes=256 << 20)
    data = failure.value.error["data"]
    assert (failure.value.code, data["stage"]) == ("start_failed", "ready")
    assert "RingFull" in data["log_tail"] or "File too large" in data["log_tail"]
    assert len(of_home(own_daemon.home)) == 2  # daemon and zygote
    own_daemon.terminate()


def test_a_session_that_cannot_even_be_spawned_is_a_start_failure_and_not_live(
    own_daemon: Daemon, work: Path
) -> None:
    (own_daemon.home / "run" / "s").rmdir()
    with pytest.raises(CallFailed) as failure:
        own_daemon.create(work, name="stillborn")
    assert (failure.value.code, failure.value.error["data"]["stage"]) == ("start_failed", "spawn")
    assert own_daemon.call("session.list") == {"sessions": [], "next_cursor": None}
    (own_daemon.home / "run" / "s").mkdir(mode=0o700)
    assert own_daemon.create(work, name="stillborn")["state"] == "idle"


@pytest.mark.soak
def test_a_zygote_that_hangs_is_replaced_and_makes_no_shim_too_late(
    own_daemon: Daemon, work: Path
) -> None:
    own_daemon.create(work)
    zygote = own_daemon.call("sidecar.status")["zygote"]["pid"]
    os.kill(zygote, signal.SIGSTOP)
    info = own_daemon.create(work)
    assert Endpoint(info).prompt("list the files here")["status"] == "completed"
    eventually(
        lambda: own_daemon.call("sidecar.status")["zygote"]["pid"] not in (None, zygote),
        "a new zygote",
    )
    own_daemon.create(work)
    shims = {s["shim_pid"] for s in own_daemon.call("session.list")["sessions"]}
    assert {p.pid for p in of_home(own_daemon.home) if p.name() == "sidecar-shim"} == shims


@pytest.mark.soak
def test_a_dead_zygote_is_replaced_and_sessions_start_meanwhile(
    own_daemon: Daemon, work: Path
) -> None:
    zygote = eventually(lambda: own_daemon.call("sidecar.status")["zygote"]["pid"], "a zygote")
    os.kill(zygote, signal.SIGKILL)
    assert Endpoint(own_daemon.create(work)).prompt("list files here")["status"] == "completed"
    replaced = eventually(
        lambda: (own_daemon.call("sidecar.status")["zygote"]["pid"] or zygote) != zygote,
        "a new zygote",
    )
    assert replaced


def test_sessions_start_by_exec_from_a_warm_spare_where_fork_is_switched_off(
    home: Path, own_daemon: Daemon, work: Path
) -> None:
    own_daemon.terminate()
    (home / "config.toml").write_text('spawn = "exec"\n')
    own_daemon.start()
    assert own_daemon.call("sidecar.status")["zygote"]["pid"] is None
    infos = [own_daemon.create(work) for _ in range(2)]
    for info in infos:
        assert Endpoint(info).prompt("list the files here")["status"] == "completed"
    own_daemon.kill()
    own_daemon.start()
    for info in infos:
        eventually(
            lambda info=info: (
                own_daemon.call("session.status", session_id=info["session_id"])["pid"]
                == info["pid"]
            ),
            "the exec'd session is adopted",
        )


def test_a_bad_config_is_refused_by_the_name_of_the_setting(home: Path) -> None:
    (home / "config.toml").write_text("spwan = 'exec'\n")
    refused = refused_daemon(home)
    assert refused.returncode == 2
    assert "'spwan'" in refused.stderr


@pytest.mark.soak
def test_what_runs_in_a_home_that_is_deleted_ends_by_itself(own_daemon: Daemon, work: Path) -> None:
    asleep = own_daemon.create(work, idle_timeout_s=0.2)
    Endpoint(own_daemon.create(work)).prompt("run `sleep 600`", "async")
    eventually(
        lambda: (
            own_daemon.call("session.status", session_id=asleep["session_id"])["state"]
            == "sleeping"
        ),
        "one sleeps",
    )
    processes = all_of_home(own_daemon.home)
    assert len(processes) >= 6, "daemon, zygote, two shims, a worker and its tool"
    shutil.rmtree(own_daemon.home / "run")
    shutil.rmtree(own_daemon.home / "state")
    assert own_daemon.process is not None
    own_daemon.process.wait(2 * bounds.FILES_CHECK_S)
    _, left = psutil.wait_procs(processes, 2 * bounds.FILES_CHECK_S)
    assert not left
    own_daemon.hang_up()
    own_daemon.start()
    assert own_daemon.call("session.list", all=True)["sessions"] == []
