"""How subagents end: with their task, their parent, its worker or its daemon; none is left over."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from session_worker.demo_model import Reply, text
from sidecar import faults
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint
from tests.support.processes import eventually, is_alive
from tests.support.scripted import FINE
from tests.support.subagents import Family, Make, families, task

Json = dict[str, Any]


@pytest.fixture
def make(daemon: Daemon, work: Path) -> Iterator[Make]:
    with families(daemon, work) as make:
        yield make


@pytest.fixture
def make_own(own_daemon: Daemon, work: Path) -> Iterator[Make]:
    with families(own_daemon, work) as make:
        yield make


def tree(child: Json) -> list[int]:
    """Shim, worker, and the command that waits."""
    shim = psutil.Process(child["shim_pid"])
    pids = [shim.pid, *(p.pid for p in shim.children(recursive=True))]
    assert len(pids) >= 3
    return pids


def is_over(family: Family, pids: list[int]) -> bool:
    (child,) = family.children()
    return child["state"] == "exited" and not any(map(is_alive, pids))


def test_a_cancel_of_the_run_ends_the_subagent_before_it_is_answered(
    make: Make, work: Path
) -> None:
    family = make()
    run_id, child = family.holding(work)
    pids = tree(child)
    family.parent.cancel(run_id)
    assert is_over(family, pids)
    family.parent.completes()


def test_a_destroy_of_the_parent_is_answered_once_its_subagents_are_gone(
    make: Make, work: Path
) -> None:
    family = make()
    _, child = family.holding(work)
    pids = tree(child)
    family.parent.daemon.call("session.destroy", session_id=family.parent.endpoint.session_id)
    assert is_over(family, pids)


def test_a_worker_that_dies_leaves_an_unknown_outcome_and_no_subagent(
    make: Make, work: Path
) -> None:
    family = make()
    run_id, child = family.holding(work, FINE)
    pids = tree(child)
    family.parent.crash()
    assert family.parent.ended(run_id)["result"]["final_text"] == "fine"
    assert family.results() == ["interrupted, outcome unknown"]
    eventually(lambda: is_over(family, pids), "the subagent has ended")


def test_a_parent_whose_shim_is_killed_leaves_no_subagent(make: Make, work: Path) -> None:
    family = make()
    _, child = family.holding(work)
    pids = tree(child)
    os.kill(family.status()["shim_pid"], signal.SIGKILL)
    eventually(lambda: is_over(family, pids), "the subagent has ended")


def test_a_subagent_that_is_ended_by_somebody_else_is_an_error_of_its_task(
    make: Make, work: Path
) -> None:
    family = make()
    run_id, child = family.holding(work, FINE)
    family.parent.daemon.call("session.destroy", session_id=child["session_id"])
    family.parent.ended(run_id)
    (told,) = family.results()
    assert "cancelled" in told or "its session exited (destroyed)" in told


def test_a_subagent_whose_worker_dies_goes_on_with_its_task(make: Make, work: Path) -> None:
    family = make()
    run_id, child = family.holding(work, FINE)
    family.child_answers.append(Reply([text("after all")]))
    os.kill(child["pid"], signal.SIGKILL)
    family.parent.ended(run_id)
    assert family.results() == ["after all"]


def test_a_task_outlives_its_daemon_and_the_next_one_ends_it(make_own: Make, work: Path) -> None:
    family = make_own()
    daemon = family.parent.daemon
    run_id, child = family.holding(work, Reply([task("again")]), FINE)
    pids = tree(child)
    daemon.kill()
    family.child_answers.append(Reply([text("done without it")]))
    (work / "go").touch()
    # the first task has its answer, a second one cannot be begun
    assert family.parent.ended(run_id)["result"]["final_text"] == "fine"
    (refusal,) = family.results()
    assert refusal.startswith("No subagent was started: the daemon")
    assert any("done without it" in str(body) for body in family.parent.bodies)
    daemon.start()
    eventually(lambda: is_over(family, pids), "the next daemon ends it")


def test_a_daemon_that_dies_meanwhile_is_not_missed(make_own: Make, work: Path) -> None:
    family = make_own()
    daemon = family.parent.daemon
    run_id, child = family.holding(work, FINE)
    daemon.kill()
    daemon.start()
    adopted = eventually(lambda: [c for c in family.children() if c["pid"]], "it is adopted")[0]
    assert {**adopted, "last_active_at": ""} == {**child, "last_active_at": ""} | {
        "state": "running",
        "run": adopted["run"],
    }
    family.child_answers.append(Reply([text("done")]))
    (work / "go").touch()
    family.parent.ended(run_id)
    assert family.results() == ["done"]
    assert family.children()[0]["state"] == "exited"


def test_a_parent_that_ends_while_no_daemon_lives_is_followed_by_its_subagents(
    make_own: Make, work: Path
) -> None:
    family = make_own()
    daemon = family.parent.daemon
    _, child = family.holding(work)
    pids = tree(child)
    shim = family.status()["shim_pid"]
    daemon.kill()
    os.kill(shim, signal.SIGKILL)
    assert Endpoint(child).get("/healthz")[0] == 200
    daemon.start()
    eventually(lambda: is_over(family, pids), "the next daemon ends it")


@pytest.mark.soak
@pytest.mark.parametrize("point", faults.POINTS)
def test_a_subagent_is_not_left_over_wherever_a_daemon_dies_that_makes_or_ends_it(
    make_own: Make, point: str
) -> None:
    family = make_own()
    daemon = family.parent.daemon
    daemon.terminate()
    daemon.start(**{faults.VARIABLE: point})
    eventually(lambda: family.status()["pid"], "the parent is adopted")
    family.child_answers.append(Reply([text("42")]))
    family.parent.prompt(Reply([task()]), FINE)
    (told,) = family.results()
    is_ending = point in ("end_wanted", "stop_sent")
    assert told == "42" if is_ending else told.startswith("No subagent was started: the daemon")
    daemon.kill()
    daemon.start()
    ended = ("exited", "lost")
    eventually(lambda: all(c["state"] in ended for c in family.children()), "it has ended")
