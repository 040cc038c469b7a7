"""A bench for the bash tool: calls it as a session would, and reads what it answers."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from session_worker.tools.bash import BASH, BashParams
from session_worker.tools.spec import Shell, ToolContext, ToolResult

DYING_S = 5.0
"""A killed process is gone within this, on a slow machine too."""

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Bench:
    """A session's directory, and calls of the tool in it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.root.mkdir()
        self.spill = folder / "spill"
        self.shell = Shell(self.root)
        self.env = dict(os.environ)
        self.live: list[str] = []
        self.emit: Callable[[str], None] = self.live.append
        self.ids = (f"call_{n}" for n in itertools.count())

    def context(self, call_id: str) -> ToolContext:
        return ToolContext(call_id, self.root, self.shell, self.env, self.spill, self.emit)

    async def run(self, script: str, call_id: str = "", **params: Any) -> ToolResult:
        result = await BASH.handler(
            BashParams(command=script, **params), self.context(call_id or next(self.ids))
        )
        json.dumps([result.content, result.meta]).encode()
        return result

    def files(self) -> list[str]:
        return sorted(path.name for path in self.spill.iterdir())


def body(result: ToolResult) -> str:
    return result.content.rpartition("\n[")[0]


def footer(result: ToolResult) -> str:
    """Without the seconds, which differ from run to run."""
    return re.sub(r" · \d+\.\ds · ", " · ", "[" + result.content.rpartition("\n[")[2])


def is_zombie(child: psutil.Process) -> bool:
    return child.status() == psutil.STATUS_ZOMBIE


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and not is_zombie(psutil.Process(pid))
