"""Sessions whose commands are confined, from the settings to what their commands can do.

One daemon for all, and nothing in /tmp, which a jail has for itself. A level that the system does
not have is skipped, with its reason.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from session_worker.demo_model import Reply
from session_worker.sandbox import Level, SandboxUnavailable, SandboxWish, obtain
from sidecar.protocol.bounds import BASH_ARGV_BYTES
from tests.support.control import CallFailed
from tests.support.daemon import Daemon
from tests.support.processes import all_of_home, eventually
from tests.support.scripted import Scripted, bash, scripted_session
from tests.support.tool_calls import background, output, refused, stop, told

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a sandbox")

CONFINED = (Level.GUARD, Level.JAIL)


@dataclass(frozen=True)
class Place:
    """A daemon with its home, and next to it a session's directory and one that is not."""

    daemon: Daemon
    work: Path
    outside: Path

    def configure(self, level: Level, *, require: bool = True) -> None:
        """Skips the test where the system does not have the level."""
        try:
            obtain(SandboxWish(level, require=True), [], [])
        except SandboxUnavailable as error:
            pytest.skip(str(error))
        wanted = {"level": level, "require": require, "network": False}
        lines = [f'level = "{level}"', f"require = {str(require).lower()}"]
        text = "\n".join(['[permissions]\nmode = "bypass"\n[sandbox]', *lines])
        self.daemon.configure(text)
        assert self.daemon.call("sidecar.status")["sandbox"] == wanted


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    base = Path(tempfile.mkdtemp(prefix="sc-", dir="/var/tmp"))
    for name in ("home", "work", "outside"):
        (base / name).mkdir()
    daemon = Daemon(base / "home")
    daemon.start()
    try:
        yield Place(daemon, base / "work", base / "outside")
    finally:
        daemon.call("sidecar.shutdown", stop_sessions=True)
        daemon.terminate()
        eventually(lambda: not all_of_home(daemon.home), "every process has ended")
        shutil.rmtree(base)


@pytest.fixture
def session(place: Place, request: pytest.FixtureRequest) -> Iterator[Scripted]:
    place.configure(request.param)
    with scripted_session(place.daemon, place.work) as scripted:
        yield scripted
        destroy(scripted)


def destroy(scripted: Scripted) -> None:
    session_id = scripted.endpoint.session_id
    scripted.daemon.call("session.destroy", session_id=session_id, grace_s=1, purge=True)


def at(*levels: Level) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("session", levels, indirect=True, ids=str)


def sandbox_of(scripted: Scripted) -> dict[str, Any]:
    session_id = scripted.endpoint.session_id
    return scripted.daemon.call("session.status", session_id=session_id)["sandbox"]


def port(scripted: Scripted) -> str:
    return scripted.model.base_url.rpartition(":")[2]


@at(*CONFINED)
def test_a_session_gets_what_the_settings_say_and_says_so(session: Scripted, place: Place) -> None:
    level = place.daemon.call("sidecar.status")["sandbox"]["level"]
    assert (sandbox_of(session)["level"], sandbox_of(session)["missing"]) == (level, {})
    assert not session.events("notice")


@at(Level.NONE)
def test_without_a_sandbox_commands_may_what_the_user_may(session: Scripted, place: Place) -> None:
    """That it can be done at all is what makes the refusals below mean something."""
    target = place.outside / "new"
    told(session, bash(f"echo x > {target}; : <>/dev/tcp/127.0.0.1/{port(session)}"))
    told(session, bash(f"[ -S {session.endpoint.path} ] && [ -S {place.daemon.socket} ]"))
    assert target.read_text() == "x\n"
    target.unlink()


@at(*CONFINED)
def test_commands_work_in_the_session_and_reach_nothing_else(
    session: Scripted, place: Place
) -> None:
    told(session, bash("mkdir -p sub && cd sub && echo x > file"))
    assert told(session, bash("pwd; cat file")).startswith(f"{place.work}/sub\nx\n[exit 0 · ")
    for act in (
        f"echo x > {place.outside}/new",
        f": <>/dev/tcp/127.0.0.1/{port(session)}",
    ):
        assert "[exit 1 · " in refused(session, bash(act)), act
    assert list(place.outside.iterdir()) == []
    text = told(session, bash("seq 100000; echo to > /dev/stderr"))
    assert text.startswith("to\n"), "its own output may be opened anew"
    script = f"# {'x' * BASH_ARGV_BYTES}\necho it runs from a file"
    assert told(session, bash(script)).startswith("it runs from a file\n")


@at(*CONFINED)
def test_a_worker_that_came_back_confines_its_commands_too(session: Scripted, place: Place) -> None:
    session.crash()
    assert "[exit 1 · " in refused(session, bash(f"echo x > {place.outside}/new"))


@at(Level.JAIL)
def test_a_jail_hides_our_sockets_and_files(session: Scripted, place: Place) -> None:
    for path in (session.endpoint.path, place.daemon.socket, place.daemon.home / "config.toml"):
        assert Path(path).exists()
        assert "[exit 1 · " in refused(session, bash(f"[ -s {path} ] || [ -S {path} ]"))
    assert told(session, bash(f"ls -A {place.daemon.home}/run")).startswith("(no output)\n")


SLEEP = f"sleep 300.{os.getpid()}"
SERVE = f"trap 'echo bye; exit 7' TERM; setsid {SLEEP} & {SLEEP} & echo up; wait"


def sleepers() -> list[int]:
    """Pids of those that run SLEEP, as they are out here."""
    out: list[int] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cmdline() == SLEEP.split() and process.status() != psutil.STATUS_ZOMBIE:
                out.append(process.pid)
    return out


def both_sleep() -> list[int]:
    return eventually(lambda: len(pids := sleepers()) == 2 and pids, "both are there")


@at(*CONFINED)
def test_a_job_lives_on_in_the_sandbox_and_ends_with_job_stop(
    session: Scripted, place: Place
) -> None:
    told(session, background(SERVE))
    both_sleep()
    told(session, bash("true"))
    assert told(session, output()) == "up\n[job-1 · running]"
    assert f"echo x > {place.outside}" in refused(
        session, bash(f"set -v\necho x > {place.outside}/x")
    )
    assert "up\nbye\n[job-1 · ended: exit 7 after " in told(session, stop())
    assert sleepers() == []


@at(*CONFINED)
def test_a_job_in_the_sandbox_ends_with_its_session(session: Scripted, place: Place) -> None:
    told(session, background(SERVE))
    both_sleep()
    session.daemon.call("session.destroy", session_id=session.endpoint.session_id, grace_s=1)
    assert sleepers() == []


@at(*CONFINED)
@pytest.mark.parametrize("trap", ["echo bye > bye; exit", ""])
def test_a_cancelled_command_is_asked_to_end_and_then_made_to(
    session: Scripted, place: Place, trap: str
) -> None:
    (place.work / "bye").unlink(missing_ok=True)
    command = f"trap '{trap}' TERM; setsid {SLEEP} & {SLEEP} & while :; do wait; done"
    run_id = session.start(Reply([bash(command)]))
    both_sleep()
    session.cancel(run_id)
    assert sleepers() == []
    assert (place.work / "bye").exists() == bool(trap)
    session.completes()


# --- a level that cannot be had: no sandbox keeps a command from a directory it may write ----


@pytest.mark.parametrize("level", CONFINED)
def test_a_session_that_cannot_get_what_is_required_does_not_start(
    place: Place, level: Level
) -> None:
    place.configure(level)
    with pytest.raises(CallFailed) as failure:
        place.daemon.create(place.daemon.home)
    assert failure.value.code == "start_failed"
    reason = f"no sandbox of level {level}: {place.daemon.home} may be written"
    assert reason in failure.value.error["data"]["log_tail"]
    assert place.daemon.call("session.list")["sessions"] == []


def test_a_session_that_gets_less_than_it_asked_for_tells_everybody(place: Place) -> None:
    place.configure(Level.JAIL, require=False)
    with scripted_session(place.daemon, place.daemon.home) as session:
        got = sandbox_of(session)
        assert got["level"] == "none"
        assert sorted(got["missing"]) == ["guard", "jail"]
        [notice] = session.events("notice")
        assert notice["severity"] == "warning"
        assert notice["title"].startswith("Commands run in sandbox 'none' only: /var/tmp/sc-")
        destroy(session)
