"""Background jobs of a real session: what the model learns of them, and what ends them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model import Reply, Request
from sidecar.protocol.bounds import BASH_OUTPUT_BYTES, JOBS_MAX
from tests.support.daemon import Daemon
from tests.support.processes import eventually, is_alive
from tests.support.scripted import FINE, Scripted, bash, scripted_session
from tests.support.tool_calls import background, output, refused, results, stop, told

Json = dict[str, Any]
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

SERVE = "echo $$ > pid; echo up; sleep 300 & echo $! > child; wait"
"""Runs until it is ended, and has a child."""
SHORT = "sleep 0.2"


def number(file: Path) -> int:
    """A pid that a command has written down."""
    return int(eventually(lambda: file.exists() and file.read_text().strip(), f"{file} is there"))


def gone(*pids: int) -> None:
    eventually(lambda: not any(map(is_alive, pids)), "they have ended")


def test_a_job_answers_at_once_and_is_read_while_it_runs_and_when_it_has_ended(
    scripted: Scripted, work: Path
) -> None:
    started = told(scripted, background("echo one; until [ -e go ]; do sleep 0.02; done; exit 3"))
    assert started.startswith("job-1 runs in the background; read it with job_output")
    eventually(lambda: told(scripted, output()) == "one\n[job-1 · running]", "it has begun")
    (work / "go").touch()
    ended = told(scripted, output(block_s=30))
    assert ended.startswith("one\n[job-1 · ended: exit 3 after ")


def until_told(request: Request) -> Reply:
    """Starts a job, and calls something else until its end is told."""
    messages = request.body["messages"]
    if len(messages) == 1:
        return Reply([background(SHORT)])
    return (
        FINE if "has ended" in json.dumps(messages) else Reply([bash(f"sleep 0.1{len(messages)}")])
    )


def test_the_end_of_a_job_is_told_with_the_next_result(daemon: Daemon, work: Path) -> None:
    with scripted_session(daemon, work, until_told) as scripted:
        assert scripted.prompt()["result"]["final_text"] == "fine"
        result = scripted.sent[-1]["content"][0]["content"]
        assert f"\n\n[job-1 (`{SHORT}`) has ended: exit 0 after " in result


def test_the_end_of_a_job_is_told_with_the_next_prompt(scripted: Scripted, work: Path) -> None:
    told(scripted, background("echo $$ > pid; until [ -e go ]; do sleep 0.02; done"))
    pid = number(work / "pid")
    (work / "go").touch()
    gone(pid)

    def news() -> str | None:
        scripted.completes()
        return next((b["text"] for b in scripted.sent[-1]["content"] if "ended" in b["text"]), None)

    assert eventually(news, "it is told").startswith("job-1 (`echo $$ > pid; ")
    assert news() is None, "once is enough"


def test_job_stop_ends_a_job_with_all_it_started_and_lets_it_clean_up(
    scripted: Scripted, work: Path
) -> None:
    away = "setsid sleep 300 & echo $! > away"
    told(scripted, background(f"trap 'echo bye; exit 7' TERM; {away}; {SERVE}"))
    pids = [number(work / name) for name in ("pid", "child", "away")]
    assert told(scripted, stop()).startswith("up\nbye\n[job-1 · ended: exit 7 after ")
    gone(*pids)
    assert told(scripted, stop()).startswith("up\nbye\n[job-1 · ended: exit 7"), "and again"


def test_eight_jobs_run_at_once_and_a_ninth_when_one_has_ended(scripted: Scripted) -> None:
    jobs = [background(f"sleep 30{n}") for n in range(JOBS_MAX + 1)]
    *started, last = results(scripted, *jobs)
    assert not any(result.get("is_error") for result in started)
    assert last["is_error"]
    assert last["content"] == f"{JOBS_MAX} background jobs run already; stop one"
    told(scripted, stop("job-3"))
    assert told(scripted, background("sleep 300")).startswith("job-9 runs")
    known = "there is no job 'job-10', only: job-1, job-2, job-3, "
    assert known in refused(scripted, output("job-10"))


def test_a_job_lasts_as_long_as_anything_it_started(scripted: Scripted, work: Path) -> None:
    told(scripted, background("sleep 300 & echo $! > child"))
    child = number(work / "child")
    assert told(scripted, output(block_s=0.3)).endswith("[job-1 · running]")
    assert "[job-1 · ended: exit 0 after " in told(scripted, stop())
    gone(child)


@linux
@pytest.mark.parametrize("how", ["sleep 300 &", "setsid sleep 300 & sleep 0.1;"])
def test_what_a_command_leaves_running_becomes_a_job(
    scripted: Scripted, work: Path, how: str
) -> None:
    """In its group, or in a session of its own."""
    left = told(scripted, bash(f"echo hi; {how} echo $! > child"))
    child = number(work / "child")
    assert f"still running as job-1 until the session ends: pid {child}; output: " in left
    assert told(scripted, output(block_s=0.3)).endswith("hi\n[job-1 · running]")
    assert is_alive(child)
    assert "[job-1 · ended: " in told(scripted, stop())
    gone(child)


@linux
def test_what_a_command_has_put_into_another_session_ends_with_its_cancel(
    scripted: Scripted, work: Path
) -> None:
    run_id = scripted.start(Reply([bash("setsid sleep 300 & echo $! > child; wait")]))
    child = number(work / "child")
    scripted.cancel(run_id)
    gone(child)
    scripted.completes()


FLOOD = (
    f"until [ -e go ]; do sleep 0.02; done; head -c {BASH_OUTPUT_BYTES + 1} /dev/zero; sleep 300"
)


@pytest.mark.parametrize("start", [background(FLOOD), bash(f"({FLOOD}) &")])
def test_a_job_that_floods_its_output_is_ended(scripted: Scripted, work: Path, start: Json) -> None:
    assert "job-1" in told(scripted, start)
    (work / "go").touch()
    ended = told(scripted, output(block_s=30))
    assert "[job-1 · ended: more than 64MB of output" in ended
    file = Path(ended.rpartition("full: ")[2].removesuffix("]"))
    assert file.stat().st_size == BASH_OUTPUT_BYTES


def test_a_cancelled_run_leaves_its_jobs_alone(scripted: Scripted, work: Path) -> None:
    run_id = scripted.start(Reply([background(SERVE), bash("touch up; sleep 300")]))
    pid = number(work / "pid")
    eventually((work / "up").exists, "the command runs")
    scripted.cancel(run_id)
    assert told(scripted, output()) == "up\n[job-1 · running]"
    assert is_alive(pid)


def test_a_job_ends_with_a_worker_that_is_killed_and_job_output_says_so(
    scripted: Scripted, work: Path
) -> None:
    told(scripted, background(SERVE))
    pids = number(work / "pid"), number(work / "child")
    scripted.crash()
    gone(*pids)
    assert refused(scripted, output()) == (
        "there is no job 'job-1', only: none. Jobs end with their session's worker"
    )


def test_a_destroyed_session_ends_its_jobs(scripted: Scripted, work: Path) -> None:
    told(scripted, background(f"trap '' TERM; {SERVE}"))
    pids = number(work / "pid"), number(work / "child")
    scripted.daemon.call("session.destroy", session_id=scripted.endpoint.session_id, grace_s=1)
    gone(*pids)


@linux
def test_a_session_stays_awake_for_its_jobs_and_sleeps_when_they_have_ended(
    daemon: Daemon, work: Path
) -> None:
    parent = "read -r _ _ _ parent _ < /proc/$$/stat; echo $parent"
    with scripted_session(daemon, work, idle_timeout_s=0.1) as scripted:
        told(scripted, background(f"{parent} > before; sleep 1; {parent} > after"))
        session_id = scripted.endpoint.session_id

        def state() -> str:
            return daemon.call("session.status", session_id=session_id)["state"]

        eventually(lambda: state() == "sleeping", "it sleeps in the end")
        worker = number(work / "before")
        assert number(work / "after") == worker, "the worker was there all the time"
        assert not is_alive(worker)


def test_the_output_of_a_job_shows_nothing_of_ours(scripted: Scripted) -> None:
    told(scripted, background("for"))
    ended = told(scripted, output(block_s=30))
    assert "syntax error" in ended
    assert "trap" not in ended
