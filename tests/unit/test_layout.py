"""What is moved in the zygote's memory, and that it does the same there."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from session_worker import child, layout

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only where a zygote forks"),
    # pytest-xdist has threads; the children here do nothing that a lock could stop
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(autouse=True)
def nothing_stays_frozen() -> object:
    yield
    gc.unfreeze()


def test_what_has_run_is_exchanged_for_its_equal_and_the_function_stays_itself() -> None:
    def ran(start: int = 3) -> list[int]:
        return [number * start for number in range(2)]

    def idle() -> None: ...

    before, idle_before = ran.__code__, idle.__code__
    layout.gather_code(ran)
    assert ran.__code__ == before
    assert ran.__code__ is not before
    assert ran() == [0, 3]
    assert idle.__code__ is idle_before


def test_functions_share_a_copy_as_they_shared_the_code() -> None:
    def make(number: int) -> Callable[[], int]:
        return lambda: number

    one, two = make(1), make(2)
    layout.gather_code(lambda: (one(), two()))
    assert one.__code__ is two.__code__
    assert (one(), two()) == (1, 2)


def test_a_function_made_later_runs_the_copy_too() -> None:
    def make() -> Callable[[], int]:
        return lambda: 7

    early = make()
    layout.gather_code(lambda: make()())
    assert make().__code__ is early.__code__


def test_what_only_a_child_runs_is_exchanged() -> None:
    def in_the_child() -> None: ...

    before = in_the_child.__code__

    def play() -> None:
        assert os.waitpid(child.fork(in_the_child, keep=set()), 0)[1] == 0

    layout.gather_code(play)
    assert in_the_child.__code__ is not before


def test_an_error_in_what_is_played_is_raised_and_nobody_listens_any_more() -> None:
    with pytest.raises(ZeroDivisionError):
        layout.gather_code(lambda: 1 // 0)
    assert sys.getprofile() is None


def test_after_the_gaps_are_filled_new_objects_of_any_size_lie_side_by_side() -> None:
    """In a process of its own: threads of this one make and free objects meanwhile."""
    script = """
from session_worker.layout import fill_gaps
holes = [bytes(size) for size in (40, 100, 400, 700, 3000) for _ in range(2000)]
del holes[::2]
fill_gaps()
for size in (40, 100, 400, 700, 3000):
    objects = [bytes(size) for _ in range(20)]
    pages = {id(o) // 4096 for o in objects}
    print(len(pages) <= 20 * (size + 64) // 4096 + 2)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True"] * 5
