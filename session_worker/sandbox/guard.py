"""Level guard: a thread that restricts itself, so that what it starts is born restricted.

Its caller hides its memory (`prctl.hide_memory`): to Landlock this thread is one of the commands,
and they may trace their like. No fork and no `preexec_fn`: those cost 2-4 ms and are unsafe with
threads.
"""

from __future__ import annotations

import os
import platform
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from session_worker.sandbox import landlock, seccomp
from session_worker.sandbox.kernel import prctl
from session_worker.sandbox.landlock import Access

_PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 23, 24, 38

_ROOT_KEEPS = frozenset({0, 1, 3, 4, 5, 6, 7})
"""CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID: what root needs for its files. With
the others it steps over the fence: SYS_PTRACE and PERFMON read our memory in spite of Landlock."""

_ALWAYS = {
    **dict.fromkeys(
        map(Path, ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")),
        landlock.DEVICE,
    ),
    # every `multiprocessing.Lock` of Python is a file there
    Path("/dev/shm"): landlock.CONTENTS | Access.MAKE_REG | Access.REMOVE_FILE,
}


def launcher(
    roots: Sequence[Path], spill: Path, scratch: Path, *, network: bool
) -> ThreadPoolExecutor:
    """One thread that starts commands which write only below `roots` and `scratch`.

    The files in `spill` they may write, not make: `> /dev/stderr` opens the output file anew.
    Raises OSError. The caller shuts it down.
    """
    grants = {path: access for path, access in _ALWAYS.items() if path.exists()}
    grants[spill] = landlock.CONTENTS
    grants |= dict.fromkeys((*roots, scratch), landlock.TREE)
    executor = ThreadPoolExecutor(1, "sandbox-launcher")
    try:
        executor.submit(_restrict, grants, network=network).result()
    except BaseException:
        executor.shutdown()
        raise
    return executor


def _restrict(grants: dict[Path, Access], *, network: bool) -> None:
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if os.geteuid() == 0:
        _drop_capabilities()
    landlock.restrict(grants, tcp=network)
    families = seccomp.NETWORK if network else seccomp.LOCAL
    table = [
        *seccomp.refusals(families),
        *seccomp.launcher_refusals(threading.get_native_id()),
    ]
    seccomp.install(seccomp.program(table, platform.machine()))


def _drop_capabilities() -> None:
    """From what programs started by this thread can have."""
    for capability in range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1):
        if capability not in _ROOT_KEEPS and prctl(_PR_CAPBSET_READ, capability):
            prctl(_PR_CAPBSET_DROP, capability)


def problem() -> str | None:
    """Why this system cannot do it; found by doing it on a thread that ends with the call."""
    if platform.machine() not in seccomp.ARCHITECTURES:
        return f"no system call filter for {platform.machine()}"
    try:
        version = landlock.abi()
        if version < landlock.ABI_MIN:
            return f"Landlock ABI {version} cannot forbid truncating files, {landlock.ABI_MIN} can"
        with ThreadPoolExecutor(1) as executor:
            executor.submit(_restrict, {}, network=False).result()
            return executor.submit(_leak).result()
    except OSError as error:
        return f"Landlock or seccomp: {error.strerror}"


def _leak() -> str | None:
    """What this thread can do although it should not."""
    try:
        os.close(os.open(os.devnull, os.O_WRONLY))
    except PermissionError:
        pass
    else:
        return "Landlock does not keep files from being written"
    try:
        socket.socket(socket.AF_INET).close()
    except PermissionError:
        return None
    return "seccomp does not keep sockets from being made"
