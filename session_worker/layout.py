"""Where things lie in the zygote's memory: what a session writes to close together.

The first write to a shared page copies it, and the interpreter writes to much of what it only runs
or reads: reference counts, and inside code the counters of PEP 659. Imports leave that spread thin
over all they made; here what is written to and what is not are kept on pages apart. Without it a
session has some 2 MB more of its own, and each page costs it a fault.
"""

from __future__ import annotations

import gc
import mmap
import sys
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType

_gaps: list[bytes] = []
_SMALL_BYTES = 480
"""Objects of up to 512 bytes lie with their like in pools; 33 are the header of a `bytes`."""
_POOL_BYTES = 16 * 1024
_POOL_HEADER_BYTES = 48
"""Where the first object of a pool lies (CPython, Objects/obmalloc.c): all older pools are full."""
_NEXT_BYTES = 47
"""The header of a `bytes`, rounded up to 16 for lengths of 1, 17, 33 and so on."""
_GAPS_MAX = 5000
"""Of one size, should pools be laid out otherwise; some 400 were there."""
_LARGE_BYTES = 100_000
"""Below what `malloc` maps by itself."""
_replaced: list[CodeType] = []
"""Kept, since the next copy would lie where one of these was let go."""
_ALIGNMENT = 16
"""Of objects, in bytes."""
_MARKS = 1 << 24
"""A byte for each place of an object within 256 MB: the zygote is smaller."""


def fill_gaps() -> None:
    """What is made from now on lies together on pages of its own."""
    gc.freeze()
    gc.collect()  # of nothing; but lets go of what is kept to be the next dict, list or tuple
    for size in range(1, _SMALL_BYTES, 16):
        for gap in (bytes(size) for _ in range(_GAPS_MAX)):
            if id(gap) % _POOL_BYTES == _POOL_HEADER_BYTES and _is_next(gap, bytes(size)):
                break
            _gaps.append(gap)
    size = _LARGE_BYTES
    while size > _SMALL_BYTES:
        end = id(bytes(_LARGE_BYTES))
        while id(gap := bytes(size)) < end:
            _gaps.append(gap)
        size = size * 7 // 8


def _is_next(gap: bytes, other: bytes) -> bool:
    """In a pool that was never used, one object follows the other."""
    return id(other) - id(gap) == len(gap) + _NEXT_BYTES


def gather_code(play: Callable[[], object]) -> None:
    """Have functions run copies of the code that runs in `play`, made one after the other. Raises
    what `play` does.

    Some 1,800 pieces of code, 0.7 MB, lay on 1,100 pages. A function stays the object it is;
    only what it runs is exchanged, for its equal.
    """
    with mmap.mmap(-1, _MARKS) as marks:
        _mark_code(play, marks)
        fill_gaps()
        copies: dict[int, CodeType] = {}

        def copy(code: CodeType) -> CodeType:
            if not marks[_mark(code)]:
                return code
            if id(code) not in copies:
                inner = tuple(copy(c) if isinstance(c, CodeType) else c for c in code.co_consts)
                copies[id(code)] = code.replace(co_consts=inner)
                _replaced.append(code)
            return copies[id(code)]

        gc.unfreeze()  # what is frozen is not listed
        for function in [one for one in gc.get_objects() if isinstance(one, FunctionType)]:
            function.__code__ = copy(function.__code__)


def _mark_code(play: Callable[[], object], marks: mmap.mmap) -> None:
    """Set the mark of all that this thread runs in `play`, and of what children run that it forks:
    `marks` is shared with them."""

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            marks[_mark(frame.f_code)] = 1

    sys.setprofile(note)
    try:
        play()
    finally:
        sys.setprofile(None)


def _mark(code: CodeType) -> int:
    """Where its mark is. Two pieces of code may have the same; then one is copied for nothing."""
    return id(code) // _ALIGNMENT % _MARKS
