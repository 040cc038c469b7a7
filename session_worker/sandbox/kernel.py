"""System calls that Python has no function for; used by this package alone."""

from __future__ import annotations

import ctypes
import os
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)


def syscall(number: int, *arguments: int | bytes | None) -> int:
    """Its answer. Raises OSError."""
    return _checked(_libc.syscall(ctypes.c_long(number), *map(_word, arguments)))


def prctl(option: int, *arguments: Any) -> int:
    """Its answer; missing arguments are zeros. Raises OSError."""
    words = [*map(_word, arguments), *[_word(0)] * (4 - len(arguments))]
    return _checked(_libc.prctl(ctypes.c_int(option), *words))


def _word(argument: Any) -> Any:
    """Numbers as wide as a register: ctypes would pass an int as one of 32 bits."""
    return ctypes.c_ulong(argument) if isinstance(argument, int) else argument


def _checked(answer: int) -> int:
    if answer < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return answer
