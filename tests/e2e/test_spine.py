"""The main job, from the outside: create, prompt, stream, destroy."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.control import CallFailed
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint, run_request
from tests.support.processes import eventually, is_alive, of_home


def test_a_session_is_created_prompted_streamed_and_destroyed(daemon: Daemon, work: Path) -> None:
    (work / "README.txt").write_text("hello")
    info = daemon.create(work, name="spine")
    assert info["state"] == "idle"
    assert info["model"] == "demo-scripted"
    endpoint = Endpoint(info)
    with endpoint.stream("POST", "/runs", run_request("list the files here", "stream")) as events:
        seen = list(events)
    assert seen[0]["type"] == "run.created"
    assert seen[-1]["type"] == "run.completed"
    updates = [
        e["generic"]["session_update"] for e in seen if "session_update" in e.get("generic", {})
    ]
    assert [u["sessionUpdate"] for u in updates if "toolCallId" in u] == [
        "tool_call",
        "tool_call_update",
        "tool_call_update",
    ]
    assert "README.txt" in seen[-1]["run"]["output"][-1]["parts"][0]["content"]
    ended = daemon.call("session.destroy", session_id="spine")
    assert ended["state"] == "exited"
    assert ended["exit"]["reason"] == "destroyed"
    assert not is_alive(info["pid"])
    assert not is_alive(info["shim_pid"])
    assert not Path(info["endpoint"]["socket"]).exists()


def test_the_three_prompts_of_the_source_document_work_with_the_demo_model(
    daemon: Daemon, work: Path
) -> None:
    subprocess.run(["git", "init", "-q", "-b", "trunk", str(work)], check=True)
    endpoint = daemon.session(work)

    def answer(prompt: str) -> str:
        run = endpoint.prompt(prompt)
        assert run["status"] == "completed", run
        assert run["result"]["tool_calls"] >= 1
        return run["result"]["final_text"]

    answer('Create a file called hello.py that prints "Hello, World!"')
    ran = subprocess.run(["python3", work / "hello.py"], capture_output=True, text=True)
    assert ran.stdout == "Hello, World!\n"
    assert "hello.py" in answer("List all Python files in this directory")
    assert "trunk" in answer("What is the current git branch?")


def test_the_control_socket_answers_a_line_typed_by_hand(daemon: Daemon, work: Path) -> None:
    session_id = daemon.create(work)["session_id"]
    line = '{"jsonrpc":"2.0","id":1,"method":"session.status","params":{"session_id":"%s"}}\n'
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(daemon.socket))
        client.sendall((line % session_id).encode())
        client.shutdown(socket.SHUT_WR)  # as `nc -U` does at the end of its input
        with client.makefile("rb") as answer:
            status = json.loads(answer.read())["result"]
    assert status["session_id"] == session_id
    assert status["resources"]["processes"] == 2
    assert status["ring"]["capacity_bytes"] == 4 << 20
    assert status["usage"]["context_window"] == 200_000


def test_ten_sessions_live_side_by_side_and_the_death_of_one_harms_no_other(
    daemon: Daemon, work: Path
) -> None:
    infos = [daemon.create(work, name=f"s{n}") for n in range(10)]
    assert len({info["shim_pid"] for info in infos}) == 10
    victim, *others = infos
    os.kill(victim["pid"], signal.SIGKILL)
    for info in others:
        assert Endpoint(info).prompt("list the files here")["status"] == "completed"

    def restarts() -> list[int]:
        sessions = daemon.call("session.list", state="idle")["sessions"]
        return [s["restarts"] for s in sorted(sessions, key=lambda s: s["name"])]

    # states are pushed, not asked for: the word of the last run may still be on its way
    eventually(lambda: restarts() == [1] + [0] * 9, "one came back, nine never left")
    for info in infos:
        assert daemon.call("session.destroy", session_id=info["session_id"])["state"] == "exited"
    status = daemon.call("sidecar.status")
    left = {process.pid for process in of_home(daemon.home)}
    assert left == {status["pid"], status["zygote"]["pid"]}
    assert list((daemon.home / "run" / "s").iterdir()) == []


def test_a_purged_session_leaves_no_file(daemon: Daemon, work: Path) -> None:
    session_id = daemon.create(work)["session_id"]
    daemon.call("session.destroy", session_id=session_id, purge=True)
    assert list((daemon.home / "state" / "sessions").iterdir()) == []
    with pytest.raises(CallFailed) as failure:
        daemon.call("session.status", session_id=session_id)
    assert failure.value.code == "session_not_found"
