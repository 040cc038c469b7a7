"""Finding and ending processes, with real ones."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from sidecar.protocol import process_tree
from tests.support.bash_bench import linux
from tests.support.processes import eventually, is_alive

pytestmark = linux

TREE = "sleep 60 & bash -c 'sleep 60 & echo $$ $!; wait' & wait"


@pytest.fixture
def shell() -> Iterator[subprocess.Popen[str]]:
    """A shell with a child, and a second shell below it that has a child too."""
    with subprocess.Popen(
        ["bash", "-c", TREE], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        yield process
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_a_tree_is_its_root_and_all_below_but_nothing_below_an_exempt_one(
    shell: subprocess.Popen[str],
) -> None:
    assert shell.stdout is not None
    inner, below = map(int, shell.stdout.readline().split())
    every = set(process_tree.trees([shell.pid]))
    assert {shell.pid, inner, below} < every
    assert len(every) == 4
    assert set(process_tree.trees([shell.pid], exempt={inner})) == every - {inner, below}
    assert list(process_tree.trees([shell.pid], exempt={shell.pid})) == []


def test_a_round_kills_all_it_finds_and_says_whether_it_found_any(
    shell: subprocess.Popen[str],
) -> None:
    assert shell.stdout is not None
    shell.stdout.readline()
    tree = [psutil.Process(pid) for pid in process_tree.trees([shell.pid])]
    assert process_tree.freeze_and_kill(lambda: process_tree.trees([shell.pid]))
    assert shell.wait() == -signal.SIGKILL
    eventually(lambda: not any(is_alive(process.pid) for process in tree), "all of it has ended")
    assert not process_tree.freeze_and_kill(list)
