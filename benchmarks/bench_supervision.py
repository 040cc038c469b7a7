"""What supervision costs a session: create, memory, sleep, wake, restart; by fork and by exec.

Run as `python benchmarks/bench_supervision.py`. Real daemons, real workers, the demo model. The
exec path (`spawn = "exec"`) is measured in the same run: it is what the zygote is compared with.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import figures
from benchmarks.figures import create, memory, row, running, single, times
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint

SESSIONS = 20
EXEC_SESSIONS = 5
"""A cold interpreter imports for seconds; five tell enough."""
IDLE_S = 0.2
"""Idle timeout of the sessions that are put to sleep."""
CREATE_MS = 20
CREATE_TIMES = 50
"""How much faster than a cold interpreter a forked session is to be."""
PRIVATE_MB = 8
PSS_MB = 16
ASLEEP_PSS_MB = 4
WAKE_MS = 30

Infos = list[dict[str, Any]]


def main() -> None:
    with running() as daemon:
        create(daemon)
        creates = times(lambda: create(daemon), SESSIONS)
        forked = row("fork: create, endpoint answering", creates, CREATE_MS)
        measure_life(daemon, "fork", SESSIONS)
    with running("exec") as daemon:
        cold = row("exec: create, cold", cold_creates(daemon))
        row("exec: create, from a warm spare", warm_creates(daemon))
        measure_life(daemon, "exec", EXEC_SESSIONS)
    verdict = "met" if cold / forked >= CREATE_TIMES else "MISSED"
    print(f"fork before exec, create: {cold / forked:.0f} x   aim >= {CREATE_TIMES} x, {verdict}")


def cold_creates(daemon: Daemon) -> list[float]:
    """Each from a spare that was started with its daemon, a moment before."""
    spent: list[float] = []
    for _ in range(EXEC_SESSIONS):
        daemon.terminate()
        daemon.start()
        spent += times(lambda: create(daemon), 1)
    return spent


def warm_creates(daemon: Daemon) -> list[float]:
    spent: list[float] = []
    for _ in range(EXEC_SESSIONS):
        figures.wait_warm(daemon)
        spent += times(lambda: create(daemon), 1)
    return spent


def measure_life(daemon: Daemon, path: str, sessions: int) -> None:
    """Memory and restart of the sessions there are, then of as many that sleep beside them."""
    aims = (PRIVATE_MB, PSS_MB, ASLEEP_PSS_MB, WAKE_MS) if path == "fork" else (None,) * 4
    awake: Infos = daemon.call("session.list")["sessions"]
    show_memory(f"{path}: idle session, worker + shim", awake, aims[0], aims[1])
    for info in awake:
        Endpoint(info).prompt("hello there")
    show_memory(f"{path}: after one prompt, worker + shim", awake)
    row(f"{path}: worker SIGKILL to next 200", [killed(info) for info in awake])
    asleep: Infos = [create(daemon, idle_timeout_s=IDLE_S) for _ in range(sessions)]
    figures.wait_for_state(daemon, "sleeping", sessions)
    show_memory(f"{path}: sleeping session, shim", asleep, pss_aim=aims[2], processes=("shim_pid",))
    woken = iter(asleep)
    wakes = times(lambda: Endpoint(next(woken)).get("/healthz"), sessions)
    row(f"{path}: wake, connect to first answer", wakes, aims[3])


def show_memory(
    name: str,
    infos: Infos,
    private_aim: float | None = None,
    pss_aim: float | None = None,
    processes: tuple[str, ...] = ("pid", "shim_pid"),
) -> None:
    pairs = [memory([info[key] for key in processes]) for info in infos]
    private, pss = (statistics.median(values) for values in zip(*pairs, strict=True))
    single(f"{name}, private", private, "MB", private_aim)
    single(f"{name}, PSS", pss, "MB", pss_aim)


def killed(info: dict[str, Any]) -> float:
    """The pause before the restart (`RESTART_FIRST_S`, ±20 %) is part of it."""
    os.kill(info["pid"], signal.SIGKILL)
    return times(lambda: answered(info), 1)[0]


def answered(info: dict[str, Any]) -> None:
    """A connection that the dying worker had accepted is reset."""
    while True:
        try:
            if Endpoint(info).get("/healthz")[1]["pid"] != info["pid"]:
                return
        except ConnectionError:
            continue


if __name__ == "__main__":
    main()
