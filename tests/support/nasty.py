"""Processes that do not want to end, as a script: `nasty.py KIND[,KIND…] FOLDER`.

FOLDER is their mark: each has it in its arguments, wherever it goes, and each kind makes a file
there once it is as nasty as it gets. Every one of them ends by itself after `LIFE_S`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

LIFE_S = 60.0
"""Longer than any test needs, short enough to leave a machine clean after a failed one."""
STEP_S = 0.002
"""Life of one pid of the walker, and the pause of the fork loop."""
CHILDREN = 40
"""Of the fork loop, at once."""
FORKS = 20_000
"""Of the walker or the fork loop, in its whole life."""
LOOKS = 3
"""Scans for survivors: one scan can miss a walker between two pids."""
PR_SET_CHILD_SUBREAPER = 36

_ends = time.monotonic() + LIFE_S


def survivors(folder: Path) -> dict[int, str]:
    """Pid and kind of every process with that mark; a dead one does not count."""
    return {pid: kind for _ in range(LOOKS) for pid, kind in _scan(os.fsencode(folder))}


def _scan(mark: bytes) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    for pid in sorted(pids, reverse=True):
        try:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in argv:
            found.append((pid, argv[argv.index(mark) - 1].decode()))
    return found


def are_ready(kinds: str, folder: Path) -> bool:
    return {path.name for path in folder.iterdir()} == set(kinds.split(","))


# --- the script ----------------------------------------------------------------------------


def _live(ready: Path | None) -> None:
    if ready:
        ready.touch()
    while time.monotonic() < _ends:
        time.sleep(0.2)


def _deaf(ready: Path) -> None:
    """Ignores what asks it to end."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _live(ready)


def _daemon(ready: Path) -> None:
    """Forks twice, leads a session of its own and holds no descriptor of ours."""
    _leave_parent()
    os.setsid()
    _leave_parent()
    os.closerange(0, 3)
    _deaf(ready)


def _bare(ready: Path) -> None:
    """Double fork, then exec with an empty environment."""
    _leave_parent()
    os.setsid()
    os.execve(sys.executable, [*sys.orig_argv[:-2], "bare-deaf", str(ready.parent)], {})


def _walker(ready: Path) -> None:
    """Another pid every `STEP_S`."""
    for number in range(FORKS):
        _leave_parent()
        os.setsid()
        if number == CHILDREN:
            ready.touch()
        if time.monotonic() > _ends:
            return
        time.sleep(STEP_S)


def _forker(ready: Path) -> None:
    """Keeps `CHILDREN` children alive, each in a session of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    alive = 0
    for number in range(FORKS):
        if time.monotonic() > _ends:
            return
        if alive == CHILDREN:
            os.wait()
            alive -= 1
        if os.fork() == 0:
            os.setsid()
            _live(None)
            return
        alive += 1
        if number == CHILDREN - 1:
            ready.touch()


def _subreaper(ready: Path) -> None:
    """Takes in its own orphans, as a shim does."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if os.fork() == 0:
        os.setsid()
        _leave_parent()
        _live(ready)
    else:
        _live(None)


def _stopped(ready: Path) -> None:
    ready.touch()
    os.kill(os.getpid(), signal.SIGSTOP)
    _live(None)


def _leave_parent() -> None:
    if os.fork():
        os._exit(0)


_ACTS: dict[str, Callable[[Path], None]] = {
    "deaf": _deaf,
    "daemon": _daemon,
    "bare": _bare,
    "walker": _walker,
    "forker": _forker,
    "subreaper": _subreaper,
    "stopped": _stopped,
}
KINDS = tuple(_ACTS)


def command(kinds: str, folder: Path) -> str:
    """What a shell runs to have these kinds, comma-separated; it goes on while they live."""
    return f"{sys.executable} -IS {__file__} {kinds} {folder}"


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2])
    if kind in _ACTS:
        _ACTS[kind](folder / kind)
    elif kind == "bare-deaf":
        _deaf(folder / "bare")
    else:
        start = sys.orig_argv[:-2]
        for one in kind.split(","):
            subprocess.Popen([*start, one, str(folder)])
        _live(None)


if __name__ == "__main__":
    main()
