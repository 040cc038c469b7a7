"""`python -m session_worker.demo_model`: serves the demo model until SIGTERM or SIGINT.

Prints its base URL, one line, when it listens; exits 2 if the scenario cannot be loaded.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from session_worker.demo_model import DemoModel, ScenarioError, demo_script, load_scenario


async def serve(model: DemoModel, port: int, path: Path | None) -> None:
    """Serves until a signal; the line is printed once both the socket and the signals are set."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with model.serve_unix(path) if path else model.serve_tcp(port) as base_url:
        sys.stdout.write(f"unix:{path}\n" if path else f"{base_url}\n")
        sys.stdout.flush()
        await stopped.wait()


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="session_worker.demo_model", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; 0 = any free one")
    parser.add_argument("--socket", type=Path, help="serve on this Unix socket instead")
    parser.add_argument("--scenario", type=Path, help="answer from this file, not from prompts")
    options = parser.parse_args()
    try:
        script = load_scenario(options.scenario) if options.scenario else demo_script
    except ScenarioError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    asyncio.run(serve(DemoModel(script), options.port, options.socket))
    return 0


if __name__ == "__main__":
    sys.exit(main())
