"""The daemon dies at each step of a create and of a destroy; the next one finds a legal state."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar import faults
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint
from tests.support.processes import eventually, of_home

NEVER_STARTED = {"record_written", "sockets_bound", "shim_forked"}
"""Died before the shim's identity was on disk: there is no session."""
STARTED = {"specification_sent", "session_ready"}
ENDING = {"end_wanted", "stop_sent"}
ALWAYS = {"identity_written", "end_wanted"}
"""One of each kind in every run; each costs three daemons, so the others are in `make soak`."""


@pytest.mark.parametrize(
    "point",
    [
        point if point in ALWAYS else pytest.param(point, marks=pytest.mark.soak)
        for point in faults.POINTS
    ],
)
def test_a_daemon_that_dies_there_leaves_a_whole_session_or_none(
    own_daemon: Daemon, work: Path, point: str
) -> None:
    own_daemon.terminate()
    own_daemon.start(**{faults.VARIABLE: point})
    with pytest.raises((EOFError, ConnectionResetError)):
        session_id = own_daemon.create(work)["session_id"]
        own_daemon.call("session.destroy", session_id=session_id)
    own_daemon.kill()
    own_daemon.start()

    def settled() -> bool:
        sessions = own_daemon.call("session.list", all=True)["sessions"]
        return all(s["state"] in ("idle", "exited", "lost") for s in sessions)

    eventually(settled, "every session is in a legal state")
    sessions = own_daemon.call("session.list", all=True)["sessions"]
    if point in NEVER_STARTED:
        assert sessions == []
    elif point in STARTED:
        assert sessions[0]["state"] == "idle"
        assert Endpoint(sessions[0]).prompt("list the files here")["status"] == "completed"
        own_daemon.call("session.destroy", session_id=sessions[0]["session_id"])
    elif point in ENDING:
        assert sessions[0]["state"] == "exited"
    else:  # the shim was left without a specification, and has gone
        assert sessions[0]["state"] == "lost"
        own_daemon.call("session.destroy", session_id=sessions[0]["session_id"])

    def strays() -> set[int]:
        status = own_daemon.call("sidecar.status")
        return {p.pid for p in of_home(own_daemon.home)} - {
            status["pid"],
            status["zygote"]["pid"],
        }

    eventually(lambda: not strays(), "no process but daemon and zygote")
    assert list((own_daemon.home / "run" / "s").iterdir()) == []
