"""Memory that every worker writes to, copied in one go before a session needs it.

A forked worker shares its pages with the zygote until it writes to one, and each first write is a
fault of about 3 µs: some 1,500 of them before it answers, a quarter of a create. Which pages those
are is learned once, from a child that starts a session; a worker has the kernel copy them while it
waits for its own. Needs Linux 5.14; before that every page is copied when its turn comes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
from array import array
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from session_worker.rehearsal import CHECK, directory, specification
from session_worker.worker import run_worker
from session_worker.worker_start import fork_worker, hand_over
from sidecar.protocol import bounds
from sidecar.protocol.framing import encode

Span = tuple[int, int]
"""Address and length in bytes, both multiples of a page."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_ENTRY = struct.Struct("=Q")
_OWN = 1 << 63 | 1 << 56
"""Of a pagemap entry: present, and mapped by nobody else (Linux, admin-guide/mm/pagemap.rst)."""
_POPULATE_WRITE = 23

_libc = ctypes.CDLL(None)


def populate(spans: array[int]) -> None:
    """Have pages of our own there, with what they hold. Without effect where the kernel cannot."""
    for at in range(0, len(spans), 2):
        _libc.madvise(ctypes.c_void_p(spans[at]), ctypes.c_size_t(spans[at + 1]), _POPULATE_WRITE)


def written_by_a_start() -> array[int]:
    """What of the memory we have now a worker writes to until it has answered once: addresses,
    each followed by its length. Leaves no process, no descriptor and no file. Raises OSError."""
    ours = list(_private_memory())
    with directory() as place, socket.socket(socket.AF_UNIX) as client:
        endpoint = str(place / "endpoint")
        pid, link = fork_worker(run_worker, None)
        try:
            with (
                link,
                Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap,  # not hidden yet
                socket.socket(socket.AF_UNIX) as listener,
            ):
                listener.bind(endpoint)
                listener.listen()
                hand_over(link, [listener], log=2)
                link.sendall(encode({**specification(place), "shim_pid": os.getpid()}))
                client.settimeout(bounds.ZYGOTE_READY_S)
                client.connect(endpoint)
                client.sendall(CHECK)
                while client.recv(4096):
                    pass
                # an array: a worker that went through a list would write to each of its items
                return array("Q", chain.from_iterable(_own_pages(pagemap, ours)))
        finally:
            os.kill(pid, signal.SIGKILL)


def _private_memory() -> Iterator[Span]:
    """But for the stack, of which a worker uses other pages."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        edges, access, *_ = line.split()
        if access == "rw-p" and not line.endswith("[stack]"):
            low, high = (int(edge, 16) for edge in edges.split("-"))
            yield low, high - low


def _own_pages(pagemap: BinaryIO, spans: list[Span]) -> Iterator[Span]:
    """Those of `spans` that the process with that pagemap does not share any more."""
    for address, length in spans:
        pagemap.seek(address // _PAGE * _ENTRY.size)
        entries = _ENTRY.iter_unpack(pagemap.read(length // _PAGE * _ENTRY.size))
        own = [entry & _OWN == _OWN for (entry,) in entries]
        for first, last in _runs(own):
            yield address + first * _PAGE, (last - first) * _PAGE


def _runs(flags: list[bool]) -> Iterator[tuple[int, int]]:
    """First index and the one past the last, of each stretch that is true."""
    begin = None
    for index, flag in enumerate([*flags, False]):
        if flag and begin is None:
            begin = index
        elif not flag and begin is not None:
            yield begin, index
            begin = None
