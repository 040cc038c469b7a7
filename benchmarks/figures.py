"""What the benchmarks share: a real daemon, timing, and rows that name the aim beside the figure.

Compare figures within one run only: the machines they run on are noisy.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.daemon import Daemon
from tests.support.processes import eventually

QUIET_S = 0.3
"""A process tree that used no CPU for this long has imported what it imports."""


@contextmanager
def running(spawn: str = "fork", **settings: int) -> Generator[Daemon]:
    """A daemon in a home of its own, its zygote or spare warm; all of it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="sc-", dir="/tmp") as home:
        lines = [f'spawn = "{spawn}"', *(f"{key} = {value}" for key, value in settings.items())]
        Path(home, "config.toml").write_text("\n".join(lines))
        Path(home, "work").mkdir()
        daemon = Daemon(Path(home))
        daemon.start()
        try:
            wait_warm(daemon)
            yield daemon
        finally:
            if daemon.process is None:
                daemon.start()
            daemon.call("sidecar.shutdown", stop_sessions=True)
            daemon.terminate()


def wait_warm(daemon: Daemon) -> None:
    """Until the zygote, or the spare and its worker, have nothing left to import."""
    assert daemon.process is not None, "the daemon runs"
    tree = psutil.Process(daemon.process.pid).children(recursive=True)
    used: dict[int, float] = {}
    while True:
        before, used = used, {p.pid: sum(p.cpu_times()[:2]) for p in tree if p.is_running()}
        if before == used:
            return
        time.sleep(QUIET_S)
        tree = psutil.Process(daemon.process.pid).children(recursive=True)


def create(daemon: Daemon, **params: Any) -> dict[str, Any]:
    return daemon.create(daemon.home / "work", **params)


def wait_for_state(daemon: Daemon, state: str, count: int) -> None:
    def there() -> bool:
        return len(daemon.call("session.list", state=state, limit=1000)["sessions"]) == count

    eventually(there, f"{count} sessions are {state}")


def times(work: Callable[[], object], rounds: int = 20) -> list[float]:
    """Milliseconds of each round."""
    out: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        out.append(since(began))
    return out


def since(began: float) -> float:
    """Milliseconds."""
    return 1000 * (time.perf_counter() - began)


def memory(pids: list[int]) -> tuple[float, float]:
    """(private, PSS) of these processes together, in MB; root may read those that hide theirs."""
    full = [psutil.Process(pid).memory_full_info() for pid in pids]
    return sum(m.uss for m in full) / 1e6, sum(m.pss for m in full) / 1e6


def row(name: str, values: list[float], aim_ms: float | None = None) -> float:
    """Prints, and returns, the median of milliseconds."""
    values = sorted(values)
    p50, p95 = statistics.median(values), values[int(len(values) * 0.95)]
    print(f"{name:48} p50 {p50:8.1f} ms   p95 {p95:8.1f} ms{_beside(p50, aim_ms, 'ms')}")
    return p50


def single(name: str, value: float, unit: str, aim: float | None = None) -> None:
    print(f"{name:48}     {value:8.1f} {unit}{_beside(value, aim, unit)}", flush=True)


def _beside(value: float, aim: float | None, unit: str) -> str:
    if aim is None:
        return ""
    return f"   aim <= {aim:g} {unit}, {'met' if value <= aim else 'MISSED'}"
