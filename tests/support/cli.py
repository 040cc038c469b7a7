"""`sidecarctl` as a person runs it: a process, an exit code, two streams."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.daemon import environment

RUN_S = 60
"""For any one command of a test."""


@dataclass(frozen=True)
class Cli:
    """Commands on one home, run in `cwd`, each with `options` in front."""

    home: Path
    cwd: Path
    options: tuple[str, ...] = ()

    def __call__(
        self, *args: str | Path, input: str = "", **environ: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*args),
            input=input,
            env=environment(self.home, **environ),
            cwd=self.cwd,
            text=True,
            capture_output=True,
            timeout=RUN_S,
            check=False,
        )

    def ok(self, *args: str | Path, **more: str) -> str:
        """What a command that must succeed prints."""
        done = self(*args, **more)
        assert done.returncode == 0, (done.returncode, done.stdout[-500:], done.stderr)
        return done.stdout

    def json(self, *args: str | Path, **more: str) -> Any:
        return json.loads(self.ok(*args, "-o", "json", **more))

    def start(self, *args: str | Path) -> subprocess.Popen[str]:
        """A command that goes on; the caller waits for it."""
        return subprocess.Popen(
            self.argv(*args),
            env=environment(self.home),
            cwd=self.cwd,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def argv(self, *args: str | Path) -> list[str]:
        return [sys.executable, "-P", "-m", "client.cli", *self.options, *map(str, args)]
