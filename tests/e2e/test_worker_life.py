"""Workers crash, sleep and come back; the conversation goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from session_worker.demo_model import Fault, Reply, text, tool_use
from sidecar.protocol import bounds
from tests.support.control import CallFailed, Control
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint
from tests.support.model_server import model_server
from tests.support.processes import eventually, is_alive


def bash(command: str) -> dict[str, Any]:
    return tool_use("bash", {"command": command})


def status(daemon: Daemon, endpoint: Endpoint) -> dict[str, Any]:
    return daemon.call("session.status", session_id=endpoint.session_id)


def crash(daemon: Daemon, endpoint: Endpoint) -> int:
    """SIGKILL the worker; its pid."""
    pid = eventually(lambda: status(daemon, endpoint)["pid"], "a worker")
    os.kill(pid, signal.SIGKILL)
    return pid


def finished(endpoint: Endpoint, run_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        run = endpoint.get(f"/runs/{run_id}")[1]
        return run if run.get("finished_at") else None

    return eventually(look, "the run has ended")


@pytest.fixture
def session(daemon: Daemon, work: Path) -> Callable[..., Endpoint]:
    def create(base_url: str, **params: Any) -> Endpoint:
        env = {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": "k", "PATH": os.environ["PATH"]}
        return daemon.session(work, env=env, **params)

    return create


def test_a_killed_worker_is_restarted_and_clients_wait_instead_of_being_refused(
    daemon: Daemon, work: Path
) -> None:
    endpoint = daemon.session(work)
    endpoint.prompt("list the files here")
    before = endpoint.events()
    pid = crash(daemon, endpoint)
    run = endpoint.prompt("list the files here")  # queued in the listening socket meanwhile
    assert run["status"] == "completed"
    after = status(daemon, endpoint)
    assert after["pid"] != pid
    assert (after["incarnation"], after["restarts"]) == (2, 1)
    events = endpoint.events()
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[: len(before)] == before
    restarted = next(event for event in events if event["type"] == "restarted")
    assert restarted["data"] == {"incarnation": 2, "reason": "signal 9"}
    assert after["usage"]["context_tokens"] > 0


def test_a_run_cut_off_in_a_tool_goes_on_with_the_outcome_unknown_and_never_reruns_it(
    daemon: Daemon, work: Path, session: Callable[..., Endpoint]
) -> None:
    command = "echo ran >> log; until [ -e go ]; do sleep 0.05; done"
    with model_server([Reply([bash(command)]), Reply([text("I see.")])]) as model:
        endpoint = session(model.base_url)
        run_id = endpoint.prompt("go", "async")["run_id"]
        eventually((work / "log").exists, "the tool runs")
        crash(daemon, endpoint)
        run = finished(endpoint, run_id)
        assert run["status"] == "completed"
        assert run["result"]["final_text"] == "I see."
        assert (run["result"]["turns"], run["result"]["tool_calls"]) == (2, 1)
        (result,) = model.requests[1].body["messages"][-1]["content"]
        assert result["content"] == "interrupted, outcome unknown"
        assert result["is_error"] is True
    assert (work / "log").read_text() == "ran\n"


def test_a_run_cut_off_in_the_models_stream_is_asked_again_and_leaves_no_half(
    daemon: Daemon, session: Callable[..., Endpoint]
) -> None:
    stalled = Reply([text("half a sentence")], fault=Fault("stall", after=3))
    with model_server([stalled, Reply([text("whole")])]) as model:
        endpoint = session(model.base_url)
        run_id = endpoint.prompt("go", "async")["run_id"]
        eventually(lambda: len(model.requests) == 1, "the model was called")
        crash(daemon, endpoint)
        assert finished(endpoint, run_id)["result"]["final_text"] == "whole"
        assert model.requests[0].body["messages"] == model.requests[1].body["messages"]


def test_prompts_that_waited_when_the_worker_died_still_run_in_order(
    daemon: Daemon, work: Path, session: Callable[..., Endpoint]
) -> None:
    script = [Reply([bash("touch up; sleep 60")]), *(Reply([text(t)]) for t in ("a", "b", "c"))]
    with model_server(script) as model:
        endpoint = session(model.base_url)
        ids = [endpoint.prompt(f"p{n}", "async")["run_id"] for n in range(3)]
        eventually((work / "up").exists, "the tool runs")
        crash(daemon, endpoint)
        assert [finished(endpoint, i)["result"]["final_text"] for i in ids] == ["a", "b", "c"]


def test_a_run_that_was_just_cancelled_does_not_run_again(
    daemon: Daemon, work: Path, session: Callable[..., Endpoint]
) -> None:
    stubborn = "trap '' TERM; touch up; while true; do sleep 0.1; done"
    with model_server([Reply([bash(stubborn)]), Reply([text("next")])]) as model:
        endpoint = session(model.base_url)
        run_id = endpoint.prompt("go", "async")["run_id"]
        eventually((work / "up").exists, "the tool runs")
        assert endpoint.post(f"/runs/{run_id}/cancel")[0] == 202
        crash(daemon, endpoint)
        assert finished(endpoint, run_id)["status"] == "cancelled"
        assert endpoint.prompt("and now?")["result"]["final_text"] == "next"
        assert len(model.requests) == 2
        result, prompt = model.requests[1].body["messages"][-1]["content"]
    assert result["content"] == "interrupted, outcome unknown"
    assert prompt["text"] == "and now?"


def test_the_directory_is_where_the_last_command_left_it_after_a_restart(
    daemon: Daemon, work: Path
) -> None:
    endpoint = daemon.session(work)
    endpoint.prompt("run `mkdir deep && cd deep`")
    crash(daemon, endpoint)
    assert "/deep" in endpoint.prompt("run `pwd`")["result"]["final_text"]


def test_a_worker_is_restarted_while_no_daemon_lives(own_daemon: Daemon, work: Path) -> None:
    endpoint = own_daemon.session(work)
    pid = status(own_daemon, endpoint)["pid"]
    own_daemon.kill()
    os.kill(pid, signal.SIGKILL)
    assert endpoint.prompt("list the files here")["status"] == "completed"
    own_daemon.start()
    found = eventually(lambda: (s := status(own_daemon, endpoint))["pid"] and s, "adopted")
    assert (found["incarnation"], found["restarts"]) == (2, 1)


def test_the_sixth_crash_in_a_row_ends_the_session_and_resume_brings_it_back(
    daemon: Daemon, work: Path
) -> None:
    endpoint = daemon.session(work)
    endpoint.prompt("list the files here")
    killed: set[int] = set()
    for _ in range(6):
        pid = eventually(
            lambda: (p := status(daemon, endpoint)["pid"]) not in killed and p, "a new worker"
        )
        killed.add(pid)
        os.kill(pid, signal.SIGKILL)
    failed = eventually(
        lambda: (s := status(daemon, endpoint))["state"] == "failed" and s, "it gives up"
    )
    assert failed["restarts"] == 5
    assert (failed["exit"]["reason"], failed["exit"]["signal"]) == ("worker_crashed", 9)
    events = daemon.call("session.output", session_id=endpoint.session_id)["events"]
    resumed = daemon.call("session.resume", session_id=endpoint.session_id)
    assert resumed["state"] == "idle"
    assert resumed["session_id"] == endpoint.session_id
    assert resumed["incarnation"] > failed["incarnation"]
    assert endpoint.prompt("list the files here")["status"] == "completed"
    assert endpoint.events()[: len(events)] == events


def test_an_idle_session_sleeps_and_the_first_connection_is_served(
    daemon: Daemon, work: Path
) -> None:
    endpoint = daemon.session(work, idle_timeout_s=0.3)
    endpoint.prompt("run `mkdir deep && cd deep`")
    asleep = eventually(
        lambda: (s := status(daemon, endpoint))["state"] == "sleeping" and s, "it sleeps"
    )
    assert asleep["pid"] is None
    assert is_alive(asleep["shim_pid"])
    assert asleep["resources"]["processes"] == 1
    assert status(daemon, endpoint)["state"] == "sleeping"  # looking wakes nobody
    assert "/deep" in endpoint.prompt("run `pwd`")["result"]["final_text"]
    awake = status(daemon, endpoint)
    assert (awake["incarnation"], awake["restarts"]) == (2, 0)
    numbers = [event["seq"] for event in endpoint.events()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_neither_a_run_nor_an_attached_client_lets_a_session_sleep(
    daemon: Daemon, work: Path
) -> None:
    endpoint = daemon.session(work, idle_timeout_s=0.2)
    run = endpoint.prompt("run `until [ -e go ]; do sleep 0.05; done`", "async")
    pid = status(daemon, endpoint)["pid"]
    with endpoint.stream("GET", f"/sessions/{endpoint.session_id}/events") as events:
        (work / "go").touch()
        for event in events:
            if event["type"] == "run_finished" and event["run_id"] == run["run_id"]:
                break
        # one with the same patience, born later and left alone, is asleep before this one
        alone = daemon.session(work, idle_timeout_s=0.2)
        eventually(lambda: status(daemon, alone)["state"] == "sleeping", "the other sleeps")
        assert status(daemon, endpoint)["pid"] == pid
    eventually(lambda: status(daemon, endpoint)["state"] == "sleeping", "nobody is left")


def test_a_sleeping_session_can_be_destroyed_and_resumed(daemon: Daemon, work: Path) -> None:
    endpoint = daemon.session(work, idle_timeout_s=0.2)
    endpoint.prompt("list the files here")
    eventually(lambda: status(daemon, endpoint)["state"] == "sleeping", "it sleeps")
    ended = daemon.call("session.destroy", session_id=endpoint.session_id)
    assert (ended["state"], ended["exit"]["reason"]) == ("exited", "destroyed")
    assert daemon.call("session.resume", session_id=endpoint.session_id)["state"] == "idle"
    records = endpoint.get(f"/sessions/{endpoint.session_id}/transcript")[1]["records"]
    assert sum(record["kind"] == "run_finished" for record in records) == 1


def test_a_lost_session_is_resumed_with_the_callers_env(own_daemon: Daemon, work: Path) -> None:
    info = own_daemon.create(work, env={"GREETING": "first", "PATH": os.environ["PATH"]})
    os.kill(info["shim_pid"], signal.SIGKILL)
    endpoint = Endpoint(info)
    eventually(lambda: status(own_daemon, endpoint)["state"] == "lost", "the loss is seen")
    env = {"GREETING": "second", "PATH": os.environ["PATH"]}
    resumed = own_daemon.call("session.resume", session_id=info["session_id"], env=env)
    assert resumed["shim_pid"] != info["shim_pid"]
    assert "second" in endpoint.prompt("run `echo $GREETING`")["result"]["final_text"]


def test_resuming_a_live_session_changes_nothing(daemon: Daemon, work: Path) -> None:
    info = daemon.create(work)
    again = daemon.call("session.resume", session_id=info["session_id"])
    assert (again["pid"], again["incarnation"]) == (info["pid"], info["incarnation"])
    with pytest.raises(CallFailed) as failure:
        daemon.call("session.resume", session_id="nobody")
    assert failure.value.code == "session_not_found"


def test_a_stopped_worker_is_neither_restarted_nor_put_to_sleep(daemon: Daemon, work: Path) -> None:
    endpoint = daemon.session(work, idle_timeout_s=3600)
    pid = status(daemon, endpoint)["pid"]
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, "it is stopped")
    os.kill(pid, signal.SIGCONT)
    assert endpoint.prompt("list the files here")["status"] == "completed"
    after = status(daemon, endpoint)
    assert (after["pid"], after["restarts"]) == (pid, 0)


@pytest.mark.soak
def test_a_sleeper_is_adopted_asleep_and_wakes_for_its_client(
    own_daemon: Daemon, work: Path
) -> None:
    endpoint = own_daemon.session(work, idle_timeout_s=0.2)
    eventually(lambda: status(own_daemon, endpoint)["state"] == "sleeping", "it sleeps")
    own_daemon.kill()
    own_daemon.start()
    eventually(lambda: status(own_daemon, endpoint)["state"] == "sleeping", "adopted asleep")
    assert endpoint.prompt("list the files here")["status"] == "completed"


def test_a_session_that_has_just_failed_can_be_resumed_at_once(daemon: Daemon, work: Path) -> None:
    endpoint = daemon.session(work)
    with closing(Control(daemon.socket)) as watch:
        watch.call("sidecar.subscribe")
        killed: set[int] = set()
        for _ in range(bounds.RESTART_CRASHES_MAX):
            pid = eventually(
                lambda: (p := status(daemon, endpoint)["pid"]) not in killed and p, "a new worker"
            )
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)
        while watch.notification()["params"]["state"] != "failed":
            pass
        resumed = watch.call("session.resume", session_id=endpoint.session_id)
    assert resumed["state"] == "idle"
    assert endpoint.prompt("list the files here")["status"] == "completed"
    assert status(daemon, endpoint)["shim_pid"] == resumed["shim_pid"]
