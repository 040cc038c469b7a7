"""What every test of the bash tool gets, and the proof that it left no process behind."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.bash_bench import DYING_S, Bench, is_zombie

PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(autouse=True)
def no_process_left() -> Iterator[None]:
    """Orphans become ours, as they become the shim's, and nobody reaps them during the test."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    before = set(psutil.Process().children(recursive=True))  # such as the shared daemon
    yield
    children = [c for c in psutil.Process().children(recursive=True) if c not in before]
    _, left = psutil.wait_procs([child for child in children if not is_zombie(child)], DYING_S)
    for child in left:
        child.kill()
    psutil.wait_procs(children, DYING_S)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0)
    assert left == []
