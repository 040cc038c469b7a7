"""What the zygote does before its first fork must leave it fit for one."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_worker.rehearsal import rehearse


@pytest.fixture
def as_a_process_of_its_own() -> Iterator[None]:
    """A rehearsal is the first thing in a process: it sets up the log, and SIGTERM ends it."""
    root = logging.getLogger()
    handlers, term = root.handlers[:], signal.getsignal(signal.SIGTERM)
    yield
    root.handlers[:] = handlers
    signal.signal(signal.SIGTERM, term)


@pytest.mark.usefixtures("as_a_process_of_its_own")
def test_a_rehearsal_leaves_no_thread_no_descriptor_and_no_blocked_signal() -> None:
    def there() -> tuple[int, int]:
        return threading.active_count(), len(list(Path("/dev/fd").iterdir()))

    rehearse()  # what is imported late may open a file of its own, once
    before = there()
    rehearse()
    assert there() == before
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
