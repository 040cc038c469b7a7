"""worker.log as the shim keeps it for its worker: nothing printed there fills the disk."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from sidecar.protocol import bounds


class WorkerLog:
    """A pipe for the worker's output, and our stdout, where the shim copies it to.

    Contract: `copy` never blocks on the worker and does not fail; on a full disk output is lost.
    """

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)

    def copy(self, path: Path | None) -> None:
        """What is in the pipe by now. `path` is where our stdout is, to be rotated."""
        with suppress(OSError):
            os.write(1, os.read(self.reader, bounds.MIB))
            if path is not None and os.fstat(1).st_size > bounds.WORKER_LOG_BYTES:
                _rotate(path)

    def close(self) -> None:
        os.close(self.reader)
        os.close(self.writer)


def _rotate(path: Path) -> None:
    path.replace(path.with_name(f"{path.name}.1"))
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
