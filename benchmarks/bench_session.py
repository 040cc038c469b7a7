"""What a session costs: create, first token, a tool iteration, streaming, memory.

Run as `python benchmarks/bench_session.py`. Real daemon, real workers, the demo model; compare
figures within one run only, these machines are noisy.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint, run_request

SESSIONS = 20
PROMPTS = 20
TEXT_CHARS = 200_000


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="sc-", dir="/tmp") as home:
        daemon = Daemon(Path(home))
        daemon.start()
        work = Path(home) / "work"
        work.mkdir()
        try:
            infos = measure_create(daemon, work)
            endpoint = Endpoint(infos[0])
            row("bare `bash -c true` by subprocess", times(bare_bash))
            row("prompt without a tool, warm", times(lambda: endpoint.prompt("hello there")))
            row("  of it until the first text", [first_text(endpoint) for _ in range(PROMPTS)])
            row("prompt with one bash call, warm", times(lambda: endpoint.prompt("run `true`")))
            measure_stream(endpoint)
            measure_memory(infos)
            row("destroy", times(lambda: destroy(daemon, infos), SESSIONS))
        finally:
            daemon.call("sidecar.shutdown", stop_sessions=True)
            daemon.terminate()


def measure_create(daemon: Daemon, work: Path) -> list[dict[str, Any]]:
    daemon.create(work)  # waits for the zygote
    infos: list[dict[str, Any]] = []
    row("create, endpoint answering", times(lambda: infos.append(daemon.create(work)), SESSIONS))
    return infos


def destroy(daemon: Daemon, infos: list[dict[str, Any]]) -> None:
    daemon.call("session.destroy", session_id=infos.pop()["session_id"])


def bare_bash() -> None:
    subprocess.run(["bash", "--noprofile", "--norc", "-c", "true"], check=True)


def first_text(endpoint: Endpoint) -> float:
    began = time.perf_counter()
    with endpoint.stream("POST", "/runs", run_request("hello there", "stream")) as events:
        for event in events:
            if event["type"] == "message.part":
                passed = 1000 * (time.perf_counter() - began)
                list(events)
                return passed
    raise AssertionError("no text came")


def measure_stream(endpoint: Endpoint) -> None:
    began = time.perf_counter()
    body = run_request(f"!big {TEXT_CHARS // 1000}k", "stream")
    with endpoint.stream("POST", "/runs", body) as events:
        parts = sum(event["type"] == "message.part" for event in events)
    passed = time.perf_counter() - began
    print(f"{'streamed text, model to client':40} {parts / passed:8.0f} deltas/s ({parts} deltas)")


def measure_memory(infos: list[dict[str, Any]]) -> None:
    for name, key in (("worker", "pid"), ("shim", "shim_pid")):
        pss = [psutil.Process(info[key]).memory_full_info().pss / 1e6 for info in infos[1:]]
        print(f"{f'PSS of a {name}, {len(infos)} sessions':40} {statistics.median(pss):8.1f} MB")


def times(work: Callable[[], object], rounds: int = PROMPTS) -> list[float]:
    """Milliseconds of each round."""
    out: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        out.append(1000 * (time.perf_counter() - began))
    return out


def row(name: str, values: list[float]) -> None:
    values = sorted(values)
    p95 = values[int(len(values) * 0.95)]
    print(f"{name:40} p50 {statistics.median(values):8.1f} ms   p95 {p95:8.1f} ms")


if __name__ == "__main__":
    main()
