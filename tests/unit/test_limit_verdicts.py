"""Limits without a session: verdicts, and what the measuring counts once, twice or never."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil
import pytest

from session_worker import usage
from session_worker.limits import Limits, Watch, exceeded, group_settings, refused_by_kernel
from session_worker.usage import ProcessUsage, TreeUsage, total
from sidecar import admission
from sidecar.protocol.bounds import LIMIT_TASKS_FACTOR, MIB
from sidecar.request import limits_report

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("used", "reason"),
    [
        (TreeUsage(100, 10, 1.0), None),
        (TreeUsage(101, 10, 1.0), "memory_limit"),
        (TreeUsage(100, 11, 1.0), "process_limit"),
        (TreeUsage(100, 10, 1.1), "cpu_limit"),
        (TreeUsage(101, 11, 1.1), "memory_limit"),
    ],
)
def test_only_more_than_a_limit_exceeds_it(used: TreeUsage, reason: str | None) -> None:
    assert exceeded(used, Limits(memory_bytes=100, processes=10, cpu_s=1.0)) == reason
    assert exceeded(used, Limits()) is None


def test_a_control_group_holds_memory_without_swap_and_leaves_room_for_threads() -> None:
    assert group_settings(Limits(memory_bytes=5 * MIB, processes=3, cpu_s=1.0)) == {
        "memory.max": 5 * MIB,
        "memory.swap.max": 0,
        "pids.max": 3 * LIMIT_TASKS_FACTOR,
    }
    assert group_settings(Limits(cpu_s=1.0)) == {}


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"memory.events": "low 0\noom 3\noom_kill 1\n"}, "memory_limit"),
        ({"memory.events": "oom 3\noom_kill 0\n", "pids.events": "max 2\n"}, "process_limit"),
        ({"memory.events": "oom_kill 0\n", "pids.events": "max 0\n"}, None),
        ({}, None),
    ],
)
def test_what_the_kernel_refused_a_group_has_the_name_of_its_limit(
    tmp_path: Path, files: dict[str, str], reason: str | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert refused_by_kernel(str(tmp_path)) == reason


def test_unknown_limits_are_not_ours() -> None:
    assert Limits.from_wire({"processes": 3, "tokens": 5}) == Limits(processes=3)
    assert Watch(Limits.from_wire({"tokens": 5})).due is None


def row(parent: int, memory: int = 0, forked: bool = False, **more: float) -> ProcessUsage:
    cpu_s, ended_s, age_s = (more.get(key, default) for key, default in AGED.items())
    return ProcessUsage(parent, cpu_s, ended_s, memory, forked, age_s)


AGED = {"cpu": 0.0, "ended": 0.0, "age": 60.0}


SHIM, WORKER, TOOL = 1, 2, 3


def test_cpu_time_stays_the_same_when_a_process_is_reaped() -> None:
    before = {SHIM: row(0, cpu=9), WORKER: row(SHIM, cpu=2), TOOL: row(WORKER, cpu=1.5, ended=0.5)}
    reaped = {SHIM: row(0, cpu=9), WORKER: row(SHIM, cpu=2, ended=2.0)}
    orphaned = {SHIM: row(0, cpu=9, ended=2.0), TOOL: row(SHIM, cpu=1.5, ended=0.5)}
    gone = {SHIM: row(0, cpu=9, ended=4.0)}
    assert {total(t, SHIM).cpu_s for t in (before, reaped, orphaned, gone)} == {4.0}


def test_a_worker_counts_with_what_it_has_beyond_the_image_of_its_shim() -> None:
    tree = {SHIM: row(0, 90), WORKER: row(SHIM, 102, forked=True), TOOL: row(WORKER, 7)}
    assert total(tree, SHIM, WORKER) == TreeUsage(19, 2, 0)
    assert total(tree, SHIM).memory_bytes == 109, "any other child of the shim counts whole"
    executed = tree | {WORKER: row(SHIM, 102)}
    assert total(executed, SHIM, WORKER).memory_bytes == 109


def test_a_child_about_to_execute_does_not_count_its_parents_memory_again() -> None:
    tree = {SHIM: row(0, 90), WORKER: row(SHIM, 102, forked=True)}
    assert (
        total(tree | {TOOL: row(WORKER, 102, forked=True, age=0.1)}, SHIM, WORKER).memory_bytes
        == 12
    )
    assert total(tree | {TOOL: row(WORKER, 102, forked=True)}, SHIM, WORKER).memory_bytes == 114


@contextmanager
def tree_of(script: str) -> Generator[tuple[int, IO[bytes]]]:
    """A pid below which Python runs `script`, and what that prints. It ends with the body."""
    command = ["bash", "-c", '"$0" -c "$1"; :', sys.executable, script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as root:
        assert root.stdin and root.stdout
        yield root.pid, root.stdout
        root.stdin.close()


@linux
def test_the_cpu_time_of_a_living_tree_grows_and_forgets_no_process_that_ended() -> None:
    script = """
import resource, subprocess, sys
for _ in range(5):
    subprocess.run([sys.executable, "-c", "for _ in range(10**6): pass"])
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(sum(r.ru_utime + r.ru_stime for r in used), flush=True)
sys.stdin.read()
"""
    seen, told = [0.0], 0.0
    with tree_of(script) as (pid, output):
        for _ in range(5):
            told = float(output.readline())
            seen.append(total(usage.measure(pid), pid).cpu_s)
            assert seen[-1] > told - 10 * TICK_S, "a dead process was forgotten"
    assert seen == sorted(seen)
    assert seen[-1] < 2 * told


@linux
def test_memory_that_forked_processes_share_is_divided_among_them() -> None:
    script = """
import os, sys
hold = bytearray(b"x") * (64 << 20)
for _ in range(3):
    if os.fork() == 0: break
print("up", flush=True)
sys.stdin.read()
"""
    with tree_of(script) as (pid, output):
        for _ in range(4):
            output.readline()
        tree = usage.measure(pid)
        assert total(tree, pid).processes == 4
        tree = {pid: row._replace(age_s=60.0) for pid, row in tree.items()}
        assert total(tree, pid).memory_bytes > 4 * 64 * MIB
        shared = total(tree, pid, fair=True).memory_bytes
        assert 64 * MIB < shared < 2 * 64 * MIB


@linux
def test_the_tree_is_the_one_psutil_sees_and_parents_come_first() -> None:
    with tree_of("import sys; print('up', flush=True); sys.stdin.read()") as (pid, output):
        output.readline()
        tree = usage.measure(os.getpid())
        theirs = {child.pid for child in psutil.Process(pid).children(recursive=True)}
        assert {pid, *theirs} <= set(tree)
    order = list(tree)
    assert all(order.index(r.parent) < order.index(p) for p, r in tree.items() if p != order[0])


def test_a_watch_looks_when_it_is_due_and_names_what_is_exceeded() -> None:
    with tree_of("import sys; print('up', flush=True); sys.stdin.read()") as (_, output):
        output.readline()
        now = total(usage.measure(os.getpid()), os.getpid()).processes
        watch = Watch(Limits(processes=now - 1))
        assert watch.look(None) is None, "it was not due yet"
        watch.due = 0.0
        assert watch.look(None) == "process_limit"
        assert watch.look(None) is None, "the next look is a moment away"
    watch.due = 0.0
    assert watch.look(None) is None, "and sees that it is over"


@pytest.mark.parametrize(
    ("live", "available", "limit"),
    [(0, 100, None), (9, 100, None), (10, 100, "max_sessions"), (0, 99, "memory")],
)
def test_a_session_is_admitted_or_refused(live: int, available: int, limit: str | None) -> None:
    refusal = admission.verdict(live, 10, available * MIB, 100 * MIB)
    assert (refusal and refusal.data["limit"]) == limit
    assert refusal is None or refusal.code == "limit_reached"


def test_sessions_that_are_starting_have_their_memory_kept_for_them() -> None:
    assert admission.need_bytes(2) - admission.need_bytes(1) == admission.need_bytes(1) - (
        admission.need_bytes(0)
    )
    assert admission.need_bytes(0) > 0


def test_every_control_group_above_us_is_asked(tmp_path: Path) -> None:
    files = {
        "cgroup": "4:memory:/box\n2:cpu:/\n0::/user/app\n",
        "fs/memory.max": "max",
        "fs/memory.current": "7",
        "fs/user/memory.max": "1000",
        "fs/user/memory.current": "300",
        "fs/user/memory.stat": "anon 200\ninactive_file 100\n",
        "fs/user/app/memory.current": "5",
        "fs/memory/memory.limit_in_bytes": "500\n",
        "fs/memory/memory.usage_in_bytes": "450\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert admission.left_in_groups(tmp_path / "cgroup", tmp_path / "fs") == [50, 800]
    assert admission.left_in_groups(tmp_path / "none", tmp_path / "fs") == []


def test_a_report_of_limits_says_beside_each_how_it_is_enforced() -> None:
    report = limits_report({"processes": 5, "cpu_s": 2.5}, group=None)
    assert report == {
        "processes": 5,
        "cpu_s": 2.5,
        "enforced_by": {"processes": "watch", "cpu_s": "watch"},
    }
    assert limits_report({}, group=None) == {"enforced_by": {}}
