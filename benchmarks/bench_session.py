"""What a session costs: create, first token, a tool iteration, streaming.

Run as `python benchmarks/bench_session.py`. Real daemon, real workers, the demo model; compare
figures within one run only, these machines are noisy.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.figures import create, row, running, times
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint, run_request

SESSIONS = 20
PROMPTS = 20
TEXT_CHARS = 200_000


def main() -> None:
    with running() as daemon:
        infos = measure_create(daemon)
        endpoint = Endpoint(infos[0])
        row("bare `bash -c true` by subprocess", times(bare_bash))
        row("prompt without a tool, warm", times(lambda: endpoint.prompt("hello there")))
        row("  of it until the first text", [first_text(endpoint) for _ in range(PROMPTS)])
        row("prompt with one bash call, warm", times(lambda: endpoint.prompt("run `true`")))
        measure_stream(endpoint)
        row("destroy", times(lambda: destroy(daemon, infos), SESSIONS))


def measure_create(daemon: Daemon) -> list[dict[str, Any]]:
    infos = [create(daemon)]
    row("create, endpoint answering", times(lambda: infos.append(create(daemon)), SESSIONS))
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
    print(f"{'streamed text, model to client':48} {parts / passed:8.0f} deltas/s ({parts} deltas)")


if __name__ == "__main__":
    main()
