"""`make demo`, as it is run by whoever meets the project first."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.daemon import environment
from tests.support.processes import eventually, is_alive, of_home

DEMO_S = 90
"""For the whole of it; it needs some five seconds."""


class Demo:
    """A running demo, read until it has a session, and the processes it had then."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said = ""
        self._until("$ sidecarctl prompt")
        self.home = Path(re.findall(r"Everything happens in (\S+),", self.said)[0])
        daemon = psutil.Process(int(re.findall(r"^pid: (\d+)$", self.said, re.MULTILINE)[0]))
        self.seen = {daemon, *daemon.children(recursive=True), *of_home(self.home)}

    def _until(self, start: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line
            if line.startswith(start):
                return
        pytest.fail(f"the demo ended with {self.process.wait()}: {self.said}")

    def end(self) -> int:
        self.said += self.process.communicate(timeout=DEMO_S)[0]
        return self.process.returncode


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    """Fails the test if the demo leaves a process or a file behind."""
    argv = [sys.executable, "-P", "-m", "client.demo"]
    with subprocess.Popen(
        argv,
        env=environment(tmp_path),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        running = Demo(process)
        yield running
    assert not running.home.exists()
    eventually(lambda: not any(is_alive(p.pid) for p in running.seen), "nothing is left")


def test_the_demo_shows_the_whole_chain(demo: Demo) -> None:
    assert demo.end() == 0, demo.said
    commands = re.findall(r"^\$ sidecarctl (\w+ \w+)", demo.said, re.MULTILINE)
    assert commands == [
        "daemon start",
        "session create",
        "prompt demo",
        "session ls",
        "session destroy",
        "daemon stop",
    ]
    assert "\nHello, World!\n" in demo.said
    assert len(demo.seen) >= 4


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak)],
)
def test_an_interrupted_demo_cleans_up_as_well(demo: Demo, number: int, code: int) -> None:
    os.killpg(demo.process.pid, number)  # a terminal signals the whole group, too
    assert demo.end() == code, demo.said
