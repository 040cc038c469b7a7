"""What three stdio MCP servers add to a create: nothing, they connect behind it.

Run as `python benchmarks/bench_mcp.py`. Real daemon and workers, a server that is there in
milliseconds; sessions with and without take turns. Compare figures within one run only.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.figures import create, row, running, since, single
from tests.support import mcp_stub
from tests.support.daemon import Daemon

ROUNDS = 20
SERVER = {"command": sys.executable, "args": ["-I", str(mcp_stub.__file__)]}
SERVERS = dict.fromkeys(("a", "b", "c"), SERVER)


def main() -> None:
    with running() as daemon:
        measure(daemon, {})
        measured = [(measure(daemon, {}), measure(daemon, SERVERS)) for _ in range(ROUNDS)]
    without, behind = (list(times) for times in zip(*measured, strict=True))
    plain = row("create without MCP servers", without)
    single("create with three, to that", row("create with three", behind) / plain, "times", 1.1)


def measure(daemon: Daemon, servers: dict[str, Any]) -> float:
    """Milliseconds of a create; nothing is left of it."""
    began = time.perf_counter()
    info = create(daemon, mcp_servers=servers)
    passed = since(began)
    daemon.call("session.destroy", session_id=info["session_id"], purge=True)
    return passed


if __name__ == "__main__":
    main()
