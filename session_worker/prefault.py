"""Memory that every worker writes to, copied in one go before a session needs it.

A forked worker shares its pages with the zygote until it writes to one, and each first write is a
fault of about 3 µs: some 1,500 of them before it answers, a quarter of a create. Which pages those
are is learned once, from a child that starts a session; a worker has the kernel copy them while it
waits for its own. Needs Linux 5.14; before that every page is copied when its turn comes.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from session_worker import child
from session_worker.rehearsal import CHECK, directory, specification
from session_worker.spec import SessionSpec
from session_worker.worker import APP, serve
from sidecar.protocol import bounds

Span = tuple[int, int]
"""Address and length in bytes, both multiples of a page."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_ENTRY = struct.Struct("=Q")
_OWN = 1 << 63 | 1 << 56
"""Of a pagemap entry: present, and mapped by nobody else (Linux, admin-guide/mm/pagemap.rst)."""
_MADV_POPULATE_WRITE = 23

_libc = ctypes.CDLL(None)


def populate(spans: list[Span]) -> None:
    """Have pages of our own there, with what they hold. Without effect where the kernel cannot."""
    for address, length in spans:
        _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(length), _MADV_POPULATE_WRITE)


def written_by_a_start() -> list[Span]:
    """What of the memory we have now a worker writes to until it has answered once. Leaves no
    process, no descriptor and no file. Raises OSError."""
    ours = list(_private_memory())
    link, theirs = socket.socketpair()
    with directory() as place, link, socket.socket(socket.AF_UNIX) as client:
        endpoint = str(place / "endpoint")
        spec = SessionSpec.from_wire(specification(place))
        with theirs, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(endpoint)
            listener.listen()
            pid = child.fork(
                lambda: asyncio.run(serve(spec, APP, theirs, [listener])),
                keep={theirs.fileno(), listener.fileno()},
            )
        try:
            client.settimeout(bounds.ZYGOTE_READY_S)
            client.connect(endpoint)
            client.sendall(CHECK)
            while client.recv(4096):
                pass
            return list(_own_pages(pid, ours))
        finally:
            os.kill(pid, signal.SIGKILL)


def _private_memory() -> Iterator[Span]:
    """But for the stack, of which a worker uses other pages."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        edges, access, *_ = line.split()
        if access == "rw-p" and not line.endswith("[stack]"):
            low, high = (int(edge, 16) for edge in edges.split("-"))
            yield low, high - low


def _own_pages(pid: int, spans: list[Span]) -> Iterator[Span]:
    """Those of `spans` that this process does not share any more."""
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
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
