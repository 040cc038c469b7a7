"""Memory that every worker writes to, copied in one go before a session needs it.

A forked worker shares its pages with the zygote until it writes to one, and each first write is a
fault of about 3 µs: some 1,500 of them before a worker answers, a quarter of a create. Which pages
those are is learned once, from a session that is started and ended; a worker has the kernel copy
them while it waits for its own. Needs Linux 5.14; before that every page is copied when its turn
comes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import struct
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeAlias

from session_worker import child
from session_worker.grants import Grants
from session_worker.rehearsal import CHECK, sockets, specification
from sidecar.protocol import bounds
from sidecar.protocol.framing import encode
from sidecar.protocol.process_tree import children

Span = tuple[int, int]
"""Address and length in bytes, both multiples of a page."""
Pages: TypeAlias = "array[int]"
"""Spans one after the other; an array, since a list would be written to for each of its items."""

by_worker: Pages = array("Q")
"""What of the zygote's memory a worker writes to until it has first answered."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_SPAN = struct.Struct("=2Q")
_ENTRY = struct.Struct("=Q")
_OWN = 1 << 63 | 1 << 56
"""Of a pagemap entry: present, and mapped by nobody else (Linux, admin-guide/mm/pagemap.rst)."""
_POPULATE_WRITE = 23

_libc = ctypes.CDLL(None)


def populate(pages: Pages) -> None:
    """Have copies of our own of them. Without effect where the kernel cannot."""
    for at in range(0, len(pages), 2):
        _libc.madvise(ctypes.c_void_p(pages[at]), ctypes.c_size_t(pages[at + 1]), _POPULATE_WRITE)


def learn(place: Path, shim: int, requests: socket.socket) -> None:
    """Fill `by_worker` by giving the waiting shim with that pid a session in that directory.

    A child does it: a page that we wrote to meanwhile would be the session's alone, and look as if
    it had been written to there. The shim has to end with us. Leaves no process and no descriptor.
    Raises OSError.
    """
    ours, theirs = socket.socketpair()
    handle = os.pidfd_open(shim)
    try:
        with ours, theirs:
            keep = {requests.fileno(), theirs.fileno()}
            child.fork(lambda: theirs.sendall(_written_by_worker(place, shim, requests)), keep)
            theirs.close()
            ours.settimeout(bounds.ZYGOTE_READY_S)
            content = bytearray()
            while chunk := ours.recv(64 * bounds.KIB):
                content += chunk
            by_worker.frombytes(content[: len(content) // _SPAN.size * _SPAN.size])
    finally:
        with contextlib.suppress(ProcessLookupError):  # the child was killed before it could do so
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)


def _written_by_worker(place: Path, shim: int, requests: socket.socket) -> Pages:
    """Until it has answered once."""
    memory = list(_private_memory())
    daemon, link = socket.socketpair()
    with daemon, link, socket.socket(socket.AF_UNIX) as client:
        daemon.settimeout(bounds.ZYGOTE_READY_S)
        client.settimeout(bounds.ZYGOTE_READY_S)
        try:
            with (
                sockets(place) as (endpoint, control),
                Path(f"/proc/{_child_of(shim)}/pagemap").open("rb", buffering=0) as pagemap,
            ):  # it has not hidden its memory yet
                grants = Grants(endpoint, control, link, log=2)
                socket.send_fds(requests, [b"f"], grants.fds)
                link.close()
                daemon.sendall(encode({"op": "start", "spec": specification(place)}))
                client.connect(endpoint.getsockname())
                client.sendall(CHECK)
                while client.recv(4096):
                    pass
                return _own_pages(pagemap, memory)
        finally:
            os.kill(shim, signal.SIGKILL)  # its worker goes with it
            while daemon.recv(4096):
                pass


def _child_of(shim: int) -> int:
    """The worker that a shim forks ahead, once it is there."""
    until = time.monotonic() + bounds.ZYGOTE_READY_S
    while not (found := children(shim)):
        if time.monotonic() > until:
            raise TimeoutError("a shim forked no worker")
        time.sleep(bounds.PROCESS_POLL_S)
    return found[0]


def _private_memory() -> Iterator[Span]:
    """But for the stack, of which a worker uses other pages."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        edges, access, *_ = line.split()
        if access == "rw-p" and not line.endswith("[stack]"):
            low, high = (int(edge, 16) for edge in edges.split("-"))
            yield low, high - low


def _own_pages(pagemap: BinaryIO, spans: list[Span]) -> Pages:
    """Those of `spans` that the process with that pagemap does not share any more."""
    found: Pages = array("Q")
    for address, length in spans:
        pagemap.seek(address // _PAGE * _ENTRY.size)
        entries = _ENTRY.iter_unpack(pagemap.read(length // _PAGE * _ENTRY.size))
        for first, last in _runs([entry & _OWN == _OWN for (entry,) in entries]):
            found.extend((address + first * _PAGE, (last - first) * _PAGE))
    return found


def _runs(flags: list[bool]) -> Iterator[tuple[int, int]]:
    """First index and the one past the last, of each stretch that is true."""
    begin = None
    for index, flag in enumerate([*flags, False]):
        if flag and begin is None:
            begin = index
        elif not flag and begin is not None:
            yield begin, index
            begin = None
