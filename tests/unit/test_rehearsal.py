"""What the zygote does before its first fork must leave it fit for one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from session_worker import rehearsal
from tests.support.processes import eventually, is_alive

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only where a zygote forks")
ZYGOTE = """
import gc
gc.disable()
import json, os, signal, sys, threading, traceback
from pathlib import Path
from session_worker import prefault, rehearsal, zygote
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

rehearsal.rehearse()  # what is imported late may open a file of its own, once
for line in sys.stdin:
    work, output = json.loads(line)
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        fd = os.open(output, os.O_WRONLY | os.O_CREAT)
        os.dup2(fd, 1), os.dup2(fd, 2), os.close(fd)
        try:
            before = left()
            exec(work)
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@dataclass
class Zygote:
    """A process that has rehearsed; each piece of work is done by a fork of it, since it changes
    logs and signals as only a process of its own may."""

    process: subprocess.Popen[str]
    output: Path

    def do(self, work: str) -> tuple[int, str]:
        """Its exit code, negative for a signal, and what it printed."""
        assert self.process.stdin and self.process.stdout
        self.output.unlink(missing_ok=True)
        self.process.stdin.write(json.dumps([work, str(self.output)]) + "\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        return code, self.output.read_text()


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    command = [sys.executable, "-c", ZYGOTE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        yield Zygote(process, tmp_path_factory.mktemp("zygote") / "output")


def test_a_rehearsal_leaves_nothing_and_the_process_as_it_was(zygote: Zygote) -> None:
    work = "rehearsal.rehearse(); assert left() == before, (before, left())"
    assert zygote.do(work) == (0, "")


def test_learning_what_a_worker_writes_to_finds_pages_and_leaves_nothing(zygote: Zygote) -> None:
    work = """
zygote._learn_what_is_written()
try:
    os.wait()  # the learner has told what it knows, and is about to end
except ChildProcessError:
    pass
assert left() == before, (before, left())
print(sum(prefault.by_worker[1::2]) // os.sysconf("SC_PAGE_SIZE"))
"""
    code, output = zygote.do(work)
    assert code == 0, output
    assert 100 < int(output) < 5000


@pytest.mark.parametrize("victim", ["os.getpid()", "os.getppid()"], ids=["learner", "zygote"])
def test_a_kill_while_it_is_learned_leaves_no_session(zygote: Zygote, victim: str) -> None:
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
    _, output = zygote.do(work)
    ours, *shim_and_worker = (int(pid) for pid in output.splitlines()[0].split())
    assert len(shim_and_worker) == 2
    for pid in shim_and_worker:
        eventually(lambda pid=pid: not is_alive(pid), "the end of that session")
    left = list(Path("/tmp").glob(f"sidecar-rehearsal-{ours}-*"))
    for path in left:
        rehearsal._clear_up()
        assert path.exists(), "whose is it, so soon?"
        os.utime(path, (0, 0))
    rehearsal._clear_up()  # as a later zygote does
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize("part", ["_work", "_supervise"])
def test_a_zygote_told_to_end_in_a_rehearsal_does_when_it_has_cleared_up(
    zygote: Zygote, part: str
) -> None:
    work = f"""
def told(place, play=rehearsal.{part}):
    print(place, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    return play(place)
rehearsal.{part} = told
rehearsal.rehearse()
"""
    code, output = zygote.do(work)
    assert code == -signal.SIGTERM, output
    assert not Path(output.strip()).exists()
