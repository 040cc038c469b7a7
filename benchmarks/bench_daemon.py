"""What the daemon does at once: start, adopt, end a nasty tree, carry hundreds of sessions.

Run as `python benchmarks/bench_daemon.py`. Real daemons, real workers, the demo model.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.figures import create, memory, row, running, since, single, times, wait_warm
from tests.support import nasty
from tests.support.control import Control
from tests.support.daemon import Daemon, environment
from tests.support.endpoint import Endpoint
from tests.support.processes import eventually

STARTS = 10
ROUNDS = 5
POLL_S = 0.001
ADOPTED = 30
MANY = 300
CLIENTS = 4
"""That prompt the many sessions at once."""
START_MS = 150
ADOPT_MS = 200
KILL_MS = 100
LIST_MS = 300


def main() -> None:
    empty = measure_start()
    with running() as daemon:
        measure_adoption(daemon, empty)
    with running() as daemon:
        measure_kill(daemon)
    with running(max_sessions=MANY) as daemon:
        measure_many(daemon)


def measure_start() -> float:
    with tempfile.TemporaryDirectory(prefix="sc-", dir="/tmp") as home:
        daemon = Daemon(Path(home))
        starts, lists = zip(*(started(daemon) for _ in range(STARTS)), strict=True)
        daemon.terminate()
    row("daemon start to ping answered, no session", list(starts), START_MS)
    return row("  to session.list answered", list(lists))


def started(daemon: Daemon) -> tuple[float, float]:
    """Milliseconds from the start of the process to its first answer, and until it lists all
    sessions with the pids that only their shims can tell."""
    daemon.terminate()
    began = time.perf_counter()
    with (daemon.home / "daemon.log").open("ab") as log:
        daemon.process = subprocess.Popen(
            [sys.executable, "-m", "sidecar"], env=environment(daemon.home), stderr=log
        )
    while not answers(daemon):
        time.sleep(POLL_S)
    answered = since(began)
    while any(info["pid"] is None for info in daemon.call("session.list")["sessions"]):
        time.sleep(POLL_S)
    return answered, since(began)


def answers(daemon: Daemon) -> bool:
    try:
        control = Control(daemon.socket)
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    control.call("sidecar.ping")
    control.close()
    return True


def measure_adoption(daemon: Daemon, empty_ms: float) -> None:
    for _ in range(ADOPTED):
        create(daemon)
    spent: list[float] = []
    for _ in range(ROUNDS):
        wait_warm(daemon)  # or its zygote goes on importing beside the next daemon
        daemon.kill()
        spent.append(started(daemon)[1])
    row(f"{ADOPTED} sessions adopted, process start included", spent, ADOPT_MS)
    without = [max(0.0, ms - empty_ms) for ms in spent]
    row("  beyond that of an empty daemon", without, ADOPT_MS)


def measure_kill(daemon: Daemon) -> None:
    spent: list[float] = []
    sizes: list[int] = []
    for _ in range(ROUNDS):
        folder = Path(tempfile.mkdtemp(dir=daemon.home))
        kinds = ",".join(nasty.KINDS)
        info = create(daemon)
        Endpoint(info).prompt(f"run `{nasty.command(kinds, folder)}`", "async")
        eventually(lambda f=folder, k=kinds: nasty.are_ready(k, f), "all are nasty")
        sizes.append(len(nasty.survivors(folder)))
        end = {"session_id": info["session_id"], "grace_s": 0}
        spent += times(lambda e=end: daemon.call("session.destroy", **e), 1)
        assert not nasty.survivors(folder), "destroy answered too early"
        shutil.rmtree(folder)
    row(f"destroy of {statistics.median(sizes):.0f} nasty processes, no grace", spent, KILL_MS)


def measure_many(daemon: Daemon) -> None:
    infos: list[dict[str, Any]] = []
    row(f"create, each of {MANY}", times(lambda: infos.append(create(daemon)), MANY))
    with ThreadPoolExecutor(CLIENTS) as clients:
        row(f"first prompt, each of {MANY}, {CLIENTS} at once", list(clients.map(prompt, infos)))
    listed: list[dict[str, Any]] = []

    def list_all() -> None:
        listed[:] = daemon.call("session.list", limit=1000)["sessions"]

    row(f"session.list of {MANY}", times(list_all), LIST_MS)
    assert len(listed) == MANY, "a session is missing"
    assert all(info["last_result"]["stop_reason"] == "final_answer" for info in listed)
    pids = [info[key] for info in listed for key in ("pid", "shim_pid")]
    private, pss = memory(pids)
    single("  private memory of one", private / MANY, "MB")
    single("  PSS of one", pss / MANY, "MB")


def prompt(info: dict[str, Any]) -> float:
    began = time.perf_counter()
    run = Endpoint(info).prompt("hello there")
    assert run["status"] == "completed", run
    return since(began)


if __name__ == "__main__":
    main()
