"""`make demo`: the whole chain once, in a place of its own, and proof that nothing stays behind.

Every step is the `sidecarctl` command that it prints. Without a key the demo model answers.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import psutil

from client.process import runs, until_gone
from sidecar.protocol import bounds
from sidecar.protocol.process_tree import SESSION_COOKIE

NAME = "demo"
PROMPT = 'Create a file called hello.py that prints "Hello, World!" and run it'


class DemoFailed(Exception):
    """Something did not hold; the text says what."""


class Demo:
    """One demo's commands, and the processes it saw."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.work = home / "work"
        self.work.mkdir()
        self.seen: set[psutil.Process] = set()
        self._env = {**os.environ, "SIDECAR_HOME": str(home)}

    def step(self, *args: str) -> None:
        """Show a command and run it. Raises `DemoFailed`."""
        _say(f"\n$ sidecarctl {shlex.join(args)}")
        if code := self._run(args).returncode:
            raise DemoFailed(f"sidecarctl {args[0]} ended with exit code {code}")

    def ask(self, *args: str) -> dict[str, Any]:
        """The JSON answer to a command that is not worth showing."""
        return json.loads(self._run((*args, "-o", "json"), stdout=subprocess.PIPE).stdout)

    def note_processes(self) -> None:
        """Remember every process that the daemon and the session have now."""
        session, daemon = self.ask("session", "show", NAME), self.ask("daemon", "status")
        for pid in (session["shim_pid"], session["pid"], daemon["pid"], daemon["zygote"]["pid"]):
            process = psutil.Process(pid)
            self.seen |= {process, *process.children(recursive=True)}
        self.seen |= set(_of_session(session["session_id"]))

    def alive(self) -> list[psutil.Process]:
        return [process for process in self.seen if runs(process)]

    def clean_up(self) -> None:
        """End whatever a failed demo left."""
        self._run(("daemon", "stop", "--stop-sessions", "--no-start"), stderr=subprocess.DEVNULL)
        for process in self.alive():
            process.kill()
        shutil.rmtree(self.home)

    def _run(
        self, args: Sequence[str], stdout: int | None = None, stderr: int | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "client.cli", *args],
            env=self._env,
            cwd=self.work,
            stdout=stdout,
            stderr=stderr,
            timeout=bounds.CALL_S,
            check=False,
        )


def main() -> int:
    signal.signal(signal.SIGTERM, _end)
    try:
        with _demo() as demo:
            _play(demo)
    except DemoFailed as error:
        _say(f"\nThe demo failed: {error}")
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    _say("\nEverything held.")
    return 0


def _play(demo: Demo) -> None:
    _say(f"Everything happens in {demo.home}, which will be gone at the end.")
    demo.step("daemon", "start")
    demo.step("session", "create", "--name", NAME, "--mode", "auto")
    demo.note_processes()
    demo.step("prompt", NAME, PROMPT)
    demo.step("session", "ls")
    if not (demo.work / "hello.py").is_file():
        raise DemoFailed("the agent made no hello.py")
    demo.note_processes()
    demo.step("session", "destroy", NAME)
    demo.step("daemon", "stop")
    try:
        asyncio.run(until_gone(demo.seen, bounds.DAEMON_EXIT_S))
    except TimeoutError:
        raise DemoFailed(f"still running: {demo.alive()}") from None
    if sockets := [path for path in demo.home.rglob("*") if path.is_socket()]:
        raise DemoFailed(f"still there: {sockets}")
    _say(f"\nOf {len(demo.seen)} processes none is left, and no socket.")


@contextmanager
def _demo() -> Generator[Demo]:
    # not $TMPDIR: on macOS it is too long for a socket path; mkdtemp's directory is ours alone
    demo = Demo(Path(tempfile.mkdtemp(prefix="sidecar-demo-", dir="/tmp")))
    try:
        yield demo
    finally:
        demo.clean_up()


def _of_session(session_id: str) -> Generator[psutil.Process]:
    """Processes that tools started, wherever they went."""
    for process in psutil.process_iter():
        try:
            if process.environ().get(SESSION_COOKIE) == session_id:
                yield process
        except psutil.Error:
            continue


def _end(*_: object) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
