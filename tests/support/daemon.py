"""`sidecard` as a real process, for tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.control import Control
from tests.support.endpoint import Endpoint
from tests.support.processes import eventually

STOP_S = 30
"""For a daemon told to stop; it needs milliseconds."""


class Daemon:
    """`sidecard` on one home. Started, stopped and killed as a person or the kernel would."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.process: subprocess.Popen[bytes] | None = None
        self._control: Control | None = None

    @property
    def socket(self) -> Path:
        return self.home / "run" / "sidecar.sock"

    @property
    def control(self) -> Control:
        if self._control is None:
            self._control = Control(self.socket)
        return self._control

    def call(self, method: str, **params: Any) -> Any:
        return self.control.call(method, **params)

    def create(self, cwd: Path, **params: Any) -> dict[str, Any]:
        """Without questions, unless the test asks for another `mode`."""
        return self.call("session.create", cwd=str(cwd), **{"mode": "bypass"} | params)

    def session(self, cwd: Path, **params: Any) -> Endpoint:
        return Endpoint(self.create(cwd, **params))

    def start(self, preexec: str = ":", **env: str) -> None:
        """`preexec` is a shell command that prepares the process, such as `ulimit`."""
        with (self.home / "daemon.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", f'{preexec} && exec "$0" -m sidecar', sys.executable],
                env=environment(self.home, **env),
                stderr=log,
            )
        eventually(lambda: self._answers(), "the daemon answers")

    def _answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            pytest.fail(f"the daemon ended: {(self.home / 'daemon.log').read_text()}")
        try:
            return self.call("sidecar.ping") == {}
        except (FileNotFoundError, ConnectionRefusedError):
            return False

    def configure(self, settings: str) -> str:
        """Have it read new settings; what it says to them."""
        log = self.home / "daemon.log"
        before = len(log.read_text())
        (self.home / "config.toml").write_text(settings)
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)
        read = re.compile(r"settings (reloaded|stay .*)")
        return eventually(lambda: read.search(log.read_text(), before), "they are read")[1]

    def terminate(self) -> None:
        """SIGTERM; sessions go on."""
        self._leave("terminate")

    def kill(self) -> None:
        """SIGKILL."""
        self._leave("kill")

    def hang_up(self) -> None:
        """Close the control connection; the next call opens another."""
        if self._control is not None:
            self._control.close()
            self._control = None

    def _leave(self, how: str) -> None:
        self.hang_up()
        if self.process is not None:
            getattr(self.process, how)()
            self.process.wait(STOP_S)
            self.process = None


def refused_daemon(home: Path) -> subprocess.CompletedProcess[str]:
    """A daemon that is expected not to start, and what it said."""
    return subprocess.run(
        [sys.executable, "-m", "sidecar"],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=STOP_S,
    )


def environment(home: Path, **more: str) -> dict[str, str]:
    """The caller's, with this home and without anybody's model settings."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ANTHROPIC_", "SIDECAR_"))}
    clean.pop("MODEL_ID", None)
    return {**clean, "SIDECAR_HOME": str(home), **more}
