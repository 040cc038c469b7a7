"""What a freshly forked process must shed before it may do anything else."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

from sidecar.protocol import VERSION

CRASHED = 70
"""Exit code for an exception nobody caught (EX_SOFTWARE)."""


def fork(main: Callable[[], None], keep: set[int]) -> int:
    """Fork; the child runs `main` with the descriptors 0-2 and `keep`, then leaves. Its pid.

    The child drops inherited handlers, wake-up fd and signal mask, and every other descriptor:
    an inherited `flock` fd would keep the daemon's lock held after the daemon's death.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _run(main, keep)
    return pid


def _run(main: Callable[[], None], keep: set[int]) -> NoReturn:
    # os._exit only: atexit hooks and buffers belong to the parent's image
    code = CRASHED
    try:
        shed(keep)
        main()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else CRASHED
    except BaseException:  # noqa: BLE001 - whatever it is, we must leave here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def shed(keep: set[int]) -> None:
    """Drop what was inherited, but for the descriptors 0-2 and `keep`; collect garbage again."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    _close_all_but(keep | {0, 1, 2})
    os.umask(0o077)
    gc.enable()


def _close_all_but(keep: set[int]) -> None:
    edges = sorted(keep)
    for low, high in zip(edges, [*edges[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)


def count_threads() -> int:
    """Threads of this process as the kernel counts them; a fork is safe with exactly one."""
    if sys.platform == "linux":
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - a Path costs each fork 80 pages
    return threading.active_count()


def hello() -> dict[str, object]:
    """The first word of a zygote or spare, once it has imported everything."""
    return {"ready": True, "pid": os.getpid(), "threads": count_threads(), "version": VERSION}


def is_running(pid: int) -> bool:
    """Whether our child `pid` has not been collected yet."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
