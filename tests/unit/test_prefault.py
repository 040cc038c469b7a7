"""Which pages a worker will write to: what the zygote learns before it forks any."""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from session_worker import child, prefault

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="pagemap is Linux's"),
    # pytest-xdist has threads; the children here do nothing that a lock could stop
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]
PAGE = mmap.PAGESIZE
KERNEL = tuple(int(part) for part in os.uname().release.split(".")[:2])


@contextmanager
def shared_pages(count: int) -> Iterator[tuple[mmap.mmap, int]]:
    """Private memory of that many pages, all written to, and its address."""
    with mmap.mmap(-1, count * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[:] = b"x" * len(memory)
        yield memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


def pages_of_its_own(work: Callable[[], None], address: int, count: int) -> list[tuple[int, int]]:
    """Of a child that has done `work`: first page and number of pages."""
    ours, theirs = socket.socketpair()

    def run() -> None:
        work()
        theirs.send(b"x")
        theirs.recv(1)  # until we have looked, or are gone

    with ours, theirs:
        pid = child.fork(run, keep={theirs.fileno()})
        theirs.close()
        assert ours.recv(1) == b"x"
        with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
            found = prefault._own_pages(pagemap, [(address, count * PAGE)])
    assert os.waitpid(pid, 0)[1] == 0
    spans = zip(found[::2], found[1::2], strict=True)
    return [((at - address) // PAGE, length // PAGE) for at, length in spans]


def test_the_pages_a_child_has_written_to_are_found_and_no_others() -> None:
    with shared_pages(16) as (memory, address):

        def write() -> None:
            for page in (3, 7, 8, 15):
                memory[page * PAGE] = 1

        assert pages_of_its_own(write, address, 16) == [(3, 1), (7, 2), (15, 1)]


@pytest.mark.skipif(KERNEL < (5, 14), reason="before MADV_POPULATE_WRITE")
def test_a_child_has_pages_of_its_own_with_what_they_held_where_it_populates() -> None:
    with shared_pages(4) as (memory, address):

        def populate() -> None:
            prefault.populate(array("Q", (address + PAGE, 2 * PAGE)))
            assert memory[:] == b"x" * 4 * PAGE

        assert pages_of_its_own(populate, address, 4) == [(1, 2)]


def test_populating_where_there_is_no_memory_is_no_error() -> None:
    prefault.populate(array("Q", (PAGE, PAGE)))
