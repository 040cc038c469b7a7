"""Real daemons in homes of their own, and the proof that a test leaves nothing behind."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cli import Cli
from tests.support.daemon import Daemon
from tests.support.processes import all_of_home, eventually, of_home
from tests.support.questions import Ask, asking
from tests.support.scripted import Scripted, scripted_session


@contextmanager
def _private_home() -> Iterator[Path]:
    """A short SIDECAR_HOME; whatever is left of it at the end fails the test."""
    path = Path(tempfile.mkdtemp(prefix="sc-", dir="/tmp"))
    (path / "config.toml").write_text('[permissions]\nmode = "bypass"\n')  # most tests ask nobody
    try:
        yield path
    finally:
        left = all_of_home(path)
        described = [f"{p.pid} {p.name()} {p.cmdline()}" for p in left]
        for process in left:
            process.kill()
        sockets = [str(p) for p in path.rglob("*") if p.is_socket()]
        shutil.rmtree(path)
    assert not described, f"processes left behind: {described}"
    assert not sockets, f"sockets left behind: {sockets}"


@contextmanager
def _running(home: Path) -> Iterator[Daemon]:
    daemon = Daemon(home)
    daemon.start()
    try:
        yield daemon
    finally:
        if daemon.process is None:
            daemon.start()
        daemon.call("sidecar.shutdown", stop_sessions=True)
        daemon.terminate()
        eventually(lambda: not all_of_home(home), "every process of the home has ended")


@pytest.fixture
def home() -> Iterator[Path]:
    with _private_home() as path:
        yield path


@pytest.fixture
def own_daemon(home: Path) -> Iterator[Daemon]:
    """A daemon that the test may stop, kill and start again."""
    with _running(home) as daemon:
        yield daemon


@pytest.fixture(scope="session")
def _shared_daemon() -> Iterator[Daemon]:
    with _private_home() as path, _running(path) as daemon:
        yield daemon


@pytest.fixture
def daemon(_shared_daemon: Daemon) -> Iterator[Daemon]:
    """A daemon shared with other tests, which the test must not stop: a zygote takes seconds to
    warm. Every session is purged afterwards, and nothing but daemon and zygote may be left."""
    yield _shared_daemon
    for session in _shared_daemon.call("session.list", all=True, limit=1000)["sessions"]:
        _shared_daemon.call(
            "session.destroy", session_id=session["session_id"], grace_s=1, purge=True
        )
    _shared_daemon.hang_up()
    status = _shared_daemon.call("sidecar.status")
    allowed = {status["pid"], status["zygote"]["pid"]}
    left = [p for p in of_home(_shared_daemon.home) if p.pid not in allowed]
    assert not left, f"processes left behind: {left}"
    assert list((_shared_daemon.home / "run" / "s").iterdir()) == []
    assert list((_shared_daemon.home / "state" / "sessions").iterdir()) == []


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A session's directory."""
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def scripted(daemon: Daemon, work: Path) -> Iterator[Scripted]:
    with scripted_session(daemon, work) as scripted:
        yield scripted


@pytest.fixture
def ask(daemon: Daemon, work: Path) -> Iterator[Ask]:
    """Makes sessions that ask."""
    with asking(daemon, work) as ask:
        yield ask


@pytest.fixture
def session(ask: Ask) -> Scripted:
    """One that asks."""
    return ask()


@pytest.fixture
def cli(daemon: Daemon, work: Path) -> Cli:
    """`sidecarctl` on the shared daemon; it must not start another should that one vanish."""
    return Cli(daemon.home, work, ("--no-start",))
