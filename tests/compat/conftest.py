"""Clients that nobody here wrote, each in a process of its own; `make compat` installs them.

A test drives it as it drives an agent over stdio: `clients/` has what stands between, of which
nothing changes an SDK.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.compat.installed import NODE, PYTHON, installed
from tests.e2e.conftest import _shared_daemon, daemon, work
from tests.support.stdio_agent import StdioAgent

__all__ = ["_shared_daemon", "daemon", "work"]

CLIENTS = Path(__file__).with_name("clients")


@pytest.fixture(scope="session")
def sdks() -> Iterator[Callable[[str], StdioAgent]]:
    """Gives the process of an SDK: `python`, `typescript` or `acp-sdk`. It serves one test after
    the other, for to import takes longer than any test. One that was killed has a successor."""
    running: dict[str, StdioAgent] = {}
    with ExitStack() as stack:

        def get(sdk: str) -> StdioAgent:
            if sdk not in running or running[sdk].process.poll() is not None:
                command, cwd = _command(sdk)
                pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
                process = subprocess.Popen(command, cwd=cwd, **pipes)
                running[sdk] = StdioAgent(stack.enter_context(process))
            return running[sdk]

        yield get
        for client in running.values():
            client.close_stdin()
            _, complaints = client.left()
            assert not complaints


def _command(sdk: str) -> tuple[list[str], Path]:
    if sdk == "typescript":
        # a script that is no file finds the packages of its working directory
        script = (CLIENTS / "acp_c.mjs").read_text()
        packages = installed(NODE, "node_modules/@agentclientprotocol/sdk").parents[2]
        return ["node", "--input-type=module", "--eval", script], packages
    script = {"python": "acp_c.py", "acp-sdk": "acp_r.py"}[sdk]
    return [str(installed(PYTHON, "bin/python")), script], CLIENTS
