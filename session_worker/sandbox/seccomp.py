"""seccomp: which system calls a command is refused, as a table, and the program made of it.

The table is for what nothing else here forbids. Programs are pure; `install` is for launcher
threads alone: it cannot be taken back.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from session_worker.sandbox.kernel import prctl

_PR_SET_SECCOMP = 22
_MODE_FILTER = 2

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_KILL, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets of what a program can look at; of an argument, its lower half: all that an int has."""
_X32 = 0x40000000
"""Numbers from here on are x86_64's second set of calls, which the table does not know."""

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CALLS = {  # name: numbers in the order of ARCHITECTURES
    "socket": (41, 198),
    "ioctl": (16, 29),
    "kill": (62, 129),
    "fcntl": (72, 25),
    "rt_sigqueueinfo": (129, 138),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_tgsigqueueinfo": (297, 240),
    "prlimit64": (302, 261),
    "pidfd_send_signal": (424, 424),
    "io_uring_setup": (425, 425),
}
_F_SETOWN, _F_SETOWN_EX = 8, 15
_FIOSETOWN, _SIOCSPGRP = 0x8901, 0x8902


@dataclass(frozen=True)
class When:
    """A condition: argument number `argument` is `value`, or is not."""

    argument: int
    value: int
    equal: bool = True


@dataclass(frozen=True)
class Refusal:
    """`call` fails with `error` when all conditions hold."""

    call: str
    conditions: tuple[When, ...] = ()
    error: int = errno.EPERM


LOCAL = (socket.AF_UNIX,)
NETWORK = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 16)
"""16 is AF_NETLINK, by which programs ask for addresses; not there on every system."""


def refusals(families: Sequence[int]) -> list[Refusal]:
    """For every command: sockets of other families, and the door past this filter."""
    others = tuple(When(0, family, equal=False) for family in families)
    return [Refusal("socket", others), Refusal("io_uring_setup")]


def launcher_refusals(thread: int) -> list[Refusal]:
    """For what a restricted thread of ours starts: whatever signals that thread, and so us.

    To Landlock the thread is one of them: `kill -9` of its number ended the worker (seen). A
    descriptor's owner is sent a signal too, and a pidfd does not say whose it is: that call
    is "not implemented", as on an older kernel. Limits of others are not Landlock's business.
    """
    return [
        Refusal("kill", (When(0, thread),)),
        Refusal("tkill", (When(0, thread),)),
        Refusal("tgkill", (When(1, thread),)),
        Refusal("rt_sigqueueinfo", (When(0, thread),)),
        Refusal("rt_tgsigqueueinfo", (When(1, thread),)),
        Refusal("pidfd_send_signal", error=errno.ENOSYS),
        Refusal("fcntl", (When(1, _F_SETOWN), When(2, thread))),
        Refusal("fcntl", (When(1, _F_SETOWN_EX),)),
        Refusal("ioctl", (When(1, _FIOSETOWN),)),
        Refusal("ioctl", (When(1, _SIOCSPGRP),)),
        Refusal("prlimit64", (When(0, 0, equal=False),)),
    ]


def program(table: Sequence[Refusal], machine: str) -> bytes:
    """The filter as the kernel takes it. Raises KeyError for an unknown machine.

    Calls of another architecture, whose numbers mean something else, end the process.
    """
    native = list(ARCHITECTURES).index(machine)
    code = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_JUMP_EQUAL, ARCHITECTURES[machine], skip_if=1),
        _instruction(_RETURN, _KILL),
    ]
    if machine == "x86_64":
        code += [
            _instruction(_LOAD, _NUMBER),
            _instruction(_JUMP_AT_LEAST, _X32, skip_unless=1),
            _instruction(_RETURN, _ERRNO | errno.ENOSYS),
        ]
    for refusal in table:
        code += _compiled(refusal, _CALLS[refusal.call][native])
    return b"".join([*code, _instruction(_RETURN, _ALLOW)])


def _compiled(refusal: Refusal, number: int) -> Iterator[bytes]:
    left = 2 * len(refusal.conditions) + 1  # instructions from here to the next refusal
    yield _instruction(_LOAD, _NUMBER)
    yield _instruction(_JUMP_EQUAL, number, skip_unless=left)
    for when in refusal.conditions:
        left -= 2
        yield _instruction(_LOAD, _ARGUMENTS + 8 * when.argument)
        if when.equal:
            yield _instruction(_JUMP_EQUAL, when.value, skip_unless=left)
        else:
            yield _instruction(_JUMP_EQUAL, when.value, skip_if=left)
    yield _instruction(_RETURN, _ERRNO | refusal.error)


def _instruction(code: int, value: int, *, skip_if: int = 0, skip_unless: int = 0) -> bytes:
    return struct.pack("=HBBI", code, skip_if, skip_unless, value)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def install(code: bytes) -> None:
    """On the calling thread and all it will start. Needs `no_new_privs`. Raises OSError."""
    length = len(code) // struct.calcsize("=HBBI")
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(_Program(length, code)))


@contextlib.contextmanager
def as_pipe(code: bytes) -> Generator[int]:
    """A descriptor that gives the program to one reader: it is shorter than a pipe is deep."""
    read_end, write_end = os.pipe()
    try:
        try:
            os.write(write_end, code)
        finally:
            os.close(write_end)
        yield read_end
    finally:
        os.close(read_end)
