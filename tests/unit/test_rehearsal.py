"""What the zygote does before its first fork must leave it fit for one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import eventually, is_alive

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only where a zygote forks")
ZYGOTE = """
import gc
gc.disable()
import os, signal, threading
from pathlib import Path
from session_worker import prefault, zygote
from session_worker.rehearsal import rehearse
from sidecar.protocol.process_tree import children

def left():
    here = Path("/proc/self")
    return (
        threading.active_count(),
        len(list((here / "fd").iterdir())),
        children(os.getpid()),
        list(Path("/tmp").glob(f"sidecar-rehearsal-{os.getpid()}-*")),
        signal.getsignal(signal.SIGTERM),
        signal.getsignal(signal.SIGCHLD),
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        [line for line in (here / "status").read_text().splitlines() if line.startswith("Name")],
    )

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
rehearse()  # what is imported late may open a file of its own, once
before = left()
"""


def zygote(work: str) -> subprocess.CompletedProcess[str]:
    """A process that has rehearsed and then does `work`: it sets up logs and signals as only a
    process of its own may."""
    command = [sys.executable, "-c", ZYGOTE + work]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_rehearsal_leaves_nothing_and_the_process_as_it_was() -> None:
    done = zygote("rehearse(); assert left() == before, (before, left())")
    assert done.returncode == 0, done.stderr


def test_learning_what_a_worker_writes_to_finds_pages_and_leaves_nothing() -> None:
    work = """
zygote._learn_what_is_written()
assert left() == before, (before, left())
assert 100 < sum(prefault.by_worker[1::2]) / 4096 < 5000
"""
    done = zygote(work)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("victim", ["os.getpid()", "os.getppid()"], ids=["learner", "zygote"])
def test_a_kill_while_it_is_learned_leaves_no_session(victim: str) -> None:
    """The session that is started for it has no record: no daemon would ever find it."""
    work = f"""

def written(place, shim, requests, written=prefault._written_by_worker):
    def kill(pagemap, memory):
        print(os.getppid(), shim, *children(shim), flush=True)
        os.kill({victim}, signal.SIGKILL)
        raise OSError("the zygote is gone")

    prefault._own_pages = kill
    return written(place, shim, requests)

prefault._written_by_worker = written
zygote._learn_what_is_written()
"""
    done = zygote(work)
    ours, *shim_and_worker = (int(pid) for pid in done.stdout.split())
    assert len(shim_and_worker) == 2, done.stderr
    for pid in shim_and_worker:
        eventually(lambda pid=pid: not is_alive(pid), "the end of that session")
    assert zygote("").returncode == 0  # the next one clears up
    assert not list(Path("/tmp").glob(f"sidecar-rehearsal-{ours}-*"))
