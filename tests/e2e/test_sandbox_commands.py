"""Commands in the sandbox as processes: how they are started, end, and work with git.

A level that the system does not have is skipped, with its reason.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from session_worker.sandbox import Level
from session_worker.tools import process
from tests.support.processes import eventually, is_alive
from tests.support.sandboxed import Confined, at, confine, directories

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a sandbox")

in_jail = at(Level.JAIL)


@pytest.fixture
def base() -> Iterator[Path]:
    with directories() as base:
        yield base


@pytest.fixture
def confined(base: Path, request: pytest.FixtureRequest) -> Iterator[Confined]:
    with confine(request.param, base, base / "root") as confined:
        yield confined


@at(*Level)
def test_commands_keep_the_contract_of_start(confined: Confined) -> None:
    """Descriptors, directory, umask, stdin, environment and a group of its own."""
    go_on, hold = os.pipe()
    read_end, write_end = os.pipe()
    script = (
        f"read -r <&{go_on}; pwd -P; umask; read -r || echo no stdin; echo $MORE; echo err >&2;"
        f" cd .git; pwd -P >&{write_end}; ls /proc/self/fd"
    )
    path = confined.base / "spill" / "output"
    with path.open("w+b") as output:
        argv = ["bash", "-c", script]
        child = confined.start(argv, output.fileno(), go_on, write_end, MORE="more")
    os.close(write_end)
    assert os.getpgid(child.pid) == child.pid == os.getsid(child.pid)
    outer = psutil.Process(child.pid)
    eventually(
        lambda: outer.environ().get("SIDECAR_SESSION") == confined.base.name, "its environment"
    )
    os.close(hold)
    assert child.wait() == 0
    with os.fdopen(read_end) as directory:
        assert directory.read() == f"{confined.root / '.git'}\n"
    lines = path.read_text().splitlines()
    assert lines[:5] == [str(confined.root), "0022", "no stdin", "more", "err"]
    assert set(lines[5:]) == {"0", "1", "2", "3", str(go_on), str(write_end)}, "3 is the folder"
    os.close(go_on)


@at(*Level)
def test_exit_codes_and_signals_are_told(confined: Confined) -> None:
    assert confined.bash("exit 7")[0] == 7
    killed = confined.bash("kill -KILL $$")[0]
    assert killed == (128 + signal.SIGKILL if confined.level == Level.JAIL else -signal.SIGKILL)


@at(Level.NONE, Level.GUARD)
def test_a_later_command_can_end_what_an_earlier_one_left(confined: Confined) -> None:
    code, pid = confined.bash("sleep 300 & echo $!")
    assert code == 0
    assert is_alive(int(pid))
    assert confined.bash(f"kill {pid}") == (0, "")
    eventually(lambda: not is_alive(int(pid)), "it has ended")


@in_jail
def test_what_a_jailed_command_leaves_ends_with_it(confined: Confined) -> None:
    mark = f"300.{os.getpid()}"
    assert confined.bash(f"setsid sleep {mark} & sleep {mark} & true")[0] == 0
    eventually(lambda: not running(mark), "the namespace is empty")


@in_jail
async def test_killing_the_group_of_a_jail_ends_all_inside(confined: Confined) -> None:
    mark = f"300.{os.getpid()}"
    child = confined.start(
        ["bash", "-c", f"trap '' TERM; setsid sleep {mark} & env -i sleep {mark}"], 2
    )
    inside = eventually(lambda: len(pids := running(mark)) == 2 and pids, "both are there")
    tree = psutil.Process(child.pid).children(recursive=True)
    assert set(inside) <= {process.pid for process in tree}, "they are seen from outside"
    assert await process.end_group(child.pid) == []
    assert not running(mark)
    child.wait()


@in_jail
def test_a_jail_ends_with_its_worker(confined: Confined) -> None:
    mark = f"300.{os.getpid()}"
    code = f"""
import os
from pathlib import Path
from session_worker.sandbox import Launcher, Level, SandboxWish, obtain
root, spill = Path({str(confined.root)!r}), Path({str(confined.base / "spill")!r})
launcher = Launcher(obtain(SandboxWish(Level.JAIL), [root], []), [root], spill, [])
launcher.start(["sleep", {mark!r}], root, os.environ, 2).wait()
"""
    worker = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
    eventually(lambda: running(mark), "it is there")
    worker.kill()
    worker.wait()
    eventually(lambda: not running(mark), "it has ended")


def running(mark: str) -> list[int]:
    """Pids of `sleep MARK` as they are out here."""
    out: list[int] = []
    for one in psutil.process_iter():
        try:
            if one.cmdline() == ["sleep", mark] and one.status() != psutil.STATUS_ZOMBIE:
                out.append(one.pid)
        except psutil.Error:
            continue
    return out


@in_jail
def test_root_in_a_jail_cannot_uncover_what_is_hidden(confined: Confined) -> None:
    code, output = confined.bash("umount $HOME/.ssh; mount -o remount,rw,bind /; cat $HOME/.ssh/id")
    assert code != 0
    assert "text" not in output


@in_jail
def test_a_jail_has_a_tmp_that_its_commands_share(confined: Confined) -> None:
    assert confined.bash("echo kept > /tmp/file; echo $TMPDIR") == (0, "/tmp\n")
    assert confined.bash("cat /tmp/file") == (0, "kept\n")
    assert not Path("/tmp/file").exists()
    assert (confined.base / "spill" / "tmp" / "file").read_text() == "kept\n"


@in_jail
def test_a_jail_sees_only_its_own_processes(confined: Confined) -> None:
    _, output = confined.bash("ls -d /proc/[0-9]*")
    assert len(output.split()) <= 3, "its first, its shell and ls"


GIT = (
    "echo $RANDOM > file; git add file; git commit -qm one; git mv -f file folder/; git stash -q; "
)
"""Enough of git to rename between directories, in the repository and in the tree."""


@at(*Level)
def test_git_works_in_a_root_and_in_a_worktree_made_there(confined: Confined) -> None:
    script = f"mkdir folder; {GIT} git worktree add -q tree; cd tree; mkdir folder; {GIT}"
    assert confined.bash(f"set -e; {script}") == (0, "")


@pytest.mark.parametrize("level", Level)
def test_git_works_in_a_worktree_whose_repository_is_elsewhere(level: Level, base: Path) -> None:
    repository = base / "root"
    git = ["git", "-C", repository]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "zero"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", base / "tree"], check=True)
    with confine(level, base, base / "tree") as confined:
        assert confined.bash(f"set -e; mkdir folder; {GIT}") == (0, "")
        code, _ = confined.bash(f"echo x > {repository}/file")
        assert (code == 0) == (level == Level.NONE)


def test_a_guards_thread_ends_with_its_launcher(base: Path) -> None:
    before = threading.active_count()
    with confine(Level.GUARD, base, base / "root"):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
