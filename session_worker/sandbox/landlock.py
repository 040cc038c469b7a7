"""Landlock: the calling thread, and all it will start, give up writing outside given paths.

Used on launcher threads alone: it cannot be taken back. Reading is left alone; so are descriptors
that are open already, such as a command's output.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from enum import IntFlag
from pathlib import Path

from session_worker.sandbox.kernel import syscall

ABI_MIN = 3
"""Before it (Linux 6.2), nothing keeps a command from truncating any file of the user."""
ABI_TCP = 4
ABI_IOCTL = 5
ABI_SCOPES = 6

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ONLY_VERSION = 1
_PATH_BENEATH = 1
_TCP_BIND_AND_CONNECT = 3
_ABSTRACT_SOCKETS_AND_SIGNALS = 3


class Access(IntFlag):
    """What can be allowed below a path, by the kernel's names."""

    WRITE_FILE = 1 << 1
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13  # link and rename between directories
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


ALL = Access(0xFFF2)
"""All of the above; the bits between them are reading and executing."""
TREE = ALL & ~(Access.MAKE_CHAR | Access.MAKE_BLOCK)
"""Everything but device files: root could make itself the disk's."""
CONTENTS = Access.WRITE_FILE | Access.TRUNCATE
"""Of files that exist."""
DEVICE = CONTENTS | Access.IOCTL_DEV


def abi() -> int:
    """The kernel's version of Landlock. Raises OSError where it has none or it is switched off."""
    return syscall(_CREATE_RULESET, None, 0, _ONLY_VERSION)


def restrict(grants: Mapping[Path, Access], *, tcp: bool) -> None:
    """From now on this thread writes only what `grants` say, and signals, traces and reaches by
    abstract socket only its like. Needs `no_new_privs`. Raises OSError."""
    version = abi()
    handled = ALL if version >= ABI_IOCTL else ALL & ~Access.IOCTL_DEV
    net = 0 if tcp or version < ABI_TCP else _TCP_BIND_AND_CONNECT
    scopes = 0 if version < ABI_SCOPES else _ABSTRACT_SOCKETS_AND_SIGNALS
    size = 24 if version >= ABI_SCOPES else 16 if version >= ABI_TCP else 8
    attributes = struct.pack("=QQQ", handled, net, scopes)
    ruleset = syscall(_CREATE_RULESET, attributes, size, 0)
    try:
        for path, access in grants.items():
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = struct.pack("=Qi", access & handled, place)
                syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
            finally:
                os.close(place)
        syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
