"""The shim by itself, where a daemon would hide what it does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ENDS_WITHIN_S = 30

SHIM_WITHOUT_FORK = """
import json, socket, sys
from session_worker.grants import Grants
from session_worker.shim import Shim

def listener(name):
    made = socket.socket(socket.AF_UNIX)
    made.bind(name)
    made.listen()
    return made

def refuse():
    raise BlockingIOError("Resource temporarily unavailable")

daemon, link = socket.socketpair()
names = ("endpoint", "control", "model", "exit", "worker_log")
spec = {"incarnation": 0, "limits": {}, "cgroup": None, "places": {name: name for name in names}}
daemon.sendall(json.dumps({"op": "start", "spec": spec}).encode() + b"\\n")
Shim(Grants(listener("endpoint"), listener("control"), link, 2), refuse).run()
"""


def test_a_worker_that_the_system_will_not_fork_ends_the_session_with_a_record(
    tmp_path: Path,
) -> None:
    shim = subprocess.run(
        [sys.executable, "-c", SHIM_WITHOUT_FORK],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
    )
    assert shim.returncode == 0, shim.stderr
    assert "no worker could be started: Resource temporarily unavailable" in shim.stderr
    ended = json.loads((tmp_path / "exit").read_text())
    assert (ended["reason"], ended["word"]["state"]) == ("worker_crashed", "failed")
    assert not (tmp_path / "endpoint").exists()
