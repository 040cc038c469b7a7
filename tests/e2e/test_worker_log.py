"""worker.log stays bounded whatever is printed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sidecar.protocol import bounds
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint
from tests.support.processes import eventually

LINE = b"x" * 99 + b"\n"


@pytest.mark.skipif(sys.platform != "linux", reason="writes through /proc")
@pytest.mark.parametrize("spawn", ["fork", pytest.param("exec", marks=pytest.mark.soak)])
def test_a_worker_that_prints_without_end_fills_no_disk(
    own_daemon: Daemon, work: Path, spawn: str
) -> None:
    own_daemon.terminate()
    (own_daemon.home / "config.toml").write_text(f"spawn = '{spawn}'\n")
    own_daemon.start()
    info = own_daemon.create(work)
    stderr = Path(f"/proc/{info['pid']}/fd/2")
    if not os.access(stderr, os.W_OK):
        pytest.skip("the worker's descriptors are hidden from us")
    with stderr.open("wb", buffering=0) as output:
        for _ in range(3 * bounds.WORKER_LOG_BYTES // len(LINE)):
            output.write(LINE)
        output.write(b"the last line\n")
    directory = own_daemon.home / "state" / "sessions" / info["session_id"]
    log = directory / "worker.log"
    eventually(lambda: log.read_bytes().endswith(b"the last line\n"), "all is copied")
    sizes = [file.stat().st_size for file in directory.glob("worker.log*")]
    assert len(sizes) == 2
    assert max(sizes) <= bounds.WORKER_LOG_BYTES + bounds.MIB
    assert all(f.stat().st_mode & 0o777 == 0o600 for f in directory.glob("worker.log*"))
    assert Endpoint(info).prompt("list the files here")["status"] == "completed"
