"""The daemon under a service manager: what it is handed, what it tells, what it keeps."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Cli
from tests.support.control import Control
from tests.support.daemon import STOP_S, Daemon, environment
from tests.support.processes import WAIT_S, eventually, of_home

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux only")
SIDECARD = [sys.executable, "-P", "-m", "sidecar"]
ACTIVATED = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": sys.argv[2]}
os.execv(sys.executable, [sys.executable, "-P", "-m", "sidecar"])
"""
LOGS = """
import logging, os, sys
from pathlib import Path
from sidecar import log
os.umask(0o077)
log.set_up(Path(sys.argv[1]), 2000, 2)
for number in range(200):
    logging.info("line %d", number)
    print("past logging", number, file=sys.stderr, flush=True)
raise RuntimeError("nobody catches me")
"""


@pytest.fixture
def unstarted(home: Path) -> Iterator[Daemon]:
    """Its test gives it a process; that one is stopped at the end."""
    daemon = Daemon(home)
    yield daemon
    daemon.terminate()
    eventually(lambda: not of_home(home), "every process of the home has ended")


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    """The socket that NOTIFY_SOCKET names."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(WAIT_S)
        yield sock


@pytest.fixture
def listener(home: Path) -> Iterator[socket.socket]:
    """The control socket, bound by us as a manager would."""
    (home / "run").mkdir(mode=0o700)
    path = home / "run" / "sidecar.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()
        yield sock
    path.unlink()


def activate(
    home: Path, fd: int, count: str = "1", stderr: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """A daemon that is handed `fd` as systemd would, by a process that becomes it."""
    argv = [sys.executable, "-c", ACTIVATED, str(fd), count]
    return subprocess.Popen(argv, env=environment(home), pass_fds=[fd], stderr=stderr)


@pytest.mark.parametrize("abstract", [False, pytest.param(True, marks=LINUX)])
def test_the_manager_hears_when_it_serves_reloads_and_stops(
    unstarted: Daemon, manager: socket.socket, abstract: bool
) -> None:
    name = f"@sidecar-{os.getpid()}" if abstract else f"{unstarted.home}/notify"
    manager.bind("\0" + name[1:] if abstract else name)
    unstarted.process = subprocess.Popen(
        SIDECARD, env=environment(unstarted.home, NOTIFY_SOCKET=name), stderr=subprocess.DEVNULL
    )
    assert manager.recv(99) == b"READY=1"
    assert unstarted.call("sidecar.ping") == {}
    unstarted.process.send_signal(signal.SIGHUP)
    reloading, began = manager.recv(99).split(b"\n")
    assert (reloading, began.partition(b"=")[0]) == (b"RELOADING=1", b"MONOTONIC_USEC")
    assert manager.recv(99) == b"READY=1"
    unstarted.terminate()
    assert manager.recv(99) == b"STOPPING=1"
    if not abstract:
        Path(name).unlink()


def test_who_connects_before_the_daemon_runs_is_served_by_each_that_inherits_the_socket(
    unstarted: Daemon, listener: socket.socket
) -> None:
    for _ in range(2):
        early = Control(unstarted.socket)
        early.send({"jsonrpc": "2.0", "id": 1, "method": "sidecar.ping"})
        unstarted.process = activate(unstarted.home, listener.fileno())
        assert early.receive()["result"] == {}
        early.close()
        if sys.platform == "linux":
            zygote = unstarted.call("sidecar.status")["zygote"]["pid"]
            assert b"LISTEN_" not in Path(f"/proc/{zygote}/environ").read_bytes()
            inode = f"socket:[{os.fstat(listener.fileno()).st_ino}]"
            held = [str(fd.readlink()) for fd in Path(f"/proc/{zygote}/fd").iterdir()]
            assert inode not in held
        unstarted.terminate()
        assert unstarted.socket.is_socket()


def test_a_socket_that_cannot_be_the_control_socket_is_refused(
    home: Path, listener: socket.socket
) -> None:
    with socket.socket() as tcp, Path(os.devnull).open() as file:
        tcp.listen()
        for fd, count in [(listener.fileno(), "2"), (tcp.fileno(), "1"), (file.fileno(), "1")]:
            refused = activate(home, fd, count, stderr=subprocess.PIPE)
            assert b"LISTEN_FDS brings" in refused.communicate(timeout=STOP_S)[1]
            assert refused.returncode == 2


def test_descriptors_for_another_process_are_none_of_ours(unstarted: Daemon) -> None:
    unstarted.start(preexec="export LISTEN_PID=1 LISTEN_FDS=1")
    assert unstarted.call("sidecar.ping") == {}


@pytest.mark.skipif(not shutil.which("systemd-socket-activate"), reason="needs systemd")
def test_systemds_own_activator_starts_it_on_the_first_connection(unstarted: Daemon) -> None:
    unstarted.socket.parent.mkdir(mode=0o700)
    variables = [f"--setenv=SIDECAR_HOME={unstarted.home}", "--setenv=PATH"]
    argv = ["systemd-socket-activate", f"--listen={unstarted.socket}", *variables, *SIDECARD]
    unstarted.process = subprocess.Popen(
        argv, env=environment(unstarted.home), stderr=subprocess.DEVNULL
    )
    eventually(unstarted.socket.is_socket, "it listens")
    assert eventually(lambda: unstarted.call("sidecar.status"), "pid")["pid"]
    unstarted.terminate()
    unstarted.socket.unlink()


def test_sighup_applies_a_good_file_and_a_bad_one_changes_nothing(
    own_daemon: Daemon, work: Path
) -> None:
    settings, log = own_daemon.home / "config.toml", own_daemon.home / "daemon.log"

    def reload(text: str) -> None:
        assert own_daemon.process is not None
        settings.write_text(text)
        own_daemon.process.send_signal(signal.SIGHUP)

    reload("max_sessions = 7\nspawn = 'exec'\n")
    eventually(
        lambda: own_daemon.call("sidecar.status")["limits"]["max_sessions"] == 7, "it is applied"
    )
    info = own_daemon.create(work)
    assert own_daemon.call("sidecar.status")["zygote"]["pid"] is None
    reload("max_sessions = 'many'\n")
    eventually(lambda: "stay as they were" in log.read_text(), "the refusal is logged")
    assert "max_sessions is a positive number, not 'many'" in log.read_text()
    assert own_daemon.call("sidecar.status")["limits"]["max_sessions"] == 7
    if sys.platform == "linux":
        reload("spawn = 'fork'\n")
        eventually(lambda: own_daemon.call("sidecar.status")["zygote"]["ready"], "a zygote")
        own_daemon.create(work)
    assert own_daemon.call("session.status", session_id=info["session_id"])["pid"] == info["pid"]


def test_a_daemon_in_the_foreground_stops_when_its_terminal_hangs_up(unstarted: Daemon) -> None:
    ours, theirs = pty.openpty()
    own_terminal = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    argv = [sys.executable, "-c", f"{own_terminal} os.execv(sys.argv[1], sys.argv[1:])", *SIDECARD]
    unstarted.process = process = subprocess.Popen(
        argv, stdin=theirs, stderr=theirs, start_new_session=True, env=environment(unstarted.home)
    )
    os.close(theirs)
    eventually(unstarted.socket.is_socket, "it serves")
    process.send_signal(signal.SIGHUP)  # while the terminal is there: a reload
    while b"reloaded" not in os.read(ours, 4096):
        pass
    os.close(ours)
    assert process.wait(STOP_S) == 0


def test_the_daemons_own_log_is_bounded_whoever_writes_to_it(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    argv = [sys.executable, "-c", LOGS, str(path)]
    with path.open("a") as log:
        path.chmod(0o600)
        subprocess.run(argv, stdout=log, stderr=log, check=False, timeout=STOP_S)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["daemon.log", "daemon.log.1", "daemon.log.2"]
    for file in files:
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.stat().st_size < 4000
    text = "".join(file.read_text() for file in reversed(files))
    numbers = [int(line.split()[2]) for line in text.splitlines() if line.startswith("past")]
    assert numbers == list(range(numbers[0], 200)), "nothing is lost in between"
    assert text.endswith("RuntimeError: nobody catches me\n")


def test_a_log_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", LOGS, str(tmp_path / "daemon.log")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=STOP_S)
    assert "line 199" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_detached_daemon_keeps_its_log_among_its_files(home: Path, work: Path) -> None:
    cli = Cli(home, work)
    cli.ok("daemon", "start")
    log = home / "state" / "daemon.log"
    assert "listens on" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    cli.ok("daemon", "stop")


@pytest.mark.skipif(sys.platform == "darwin", reason="looks for systemd's files")
def test_install_without_systemd_writes_the_units_and_says_what_to_run(
    home: Path, work: Path, tmp_path: Path
) -> None:
    cli = Cli(home, work)
    bare = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "PATH": ""}
    units = [
        tmp_path / ".config/systemd/user" / f"sidecar.{kind}" for kind in ("socket", "service")
    ]
    shown = cli("daemon", "install", "--print", **bare)
    assert not any(path.exists() for path in units)
    said = cli.ok("daemon", "install", **bare).splitlines()
    assert said[:2] == [f"wrote {path}" for path in units]
    assert said[-1] == "$ systemctl --user enable --now sidecar.socket sidecar.service"
    assert shown.stdout == "".join(path.read_text() for path in units)
    assert f'Environment="SIDECAR_HOME={home}"' in shown.stdout
    said = cli.ok("daemon", "uninstall", **bare).splitlines()
    assert [line for line in said if "removed" in line] == [f"removed {path}" for path in units]
    assert not any(path.exists() for path in units)
    assert cli.ok("daemon", "uninstall", **bare) == "nothing is installed\n"
    units[1].write_text("[Service]\n")
    refused = cli("daemon", "install", **bare)
    assert (refused.returncode, units[0].exists()) == (5, False)
