"""Processes of tools: started in a group of their own, awaited, ended with all their children.

Called by tools that run programs. Never uses asyncio's subprocesses: on 3.11 they cost a thread
per child, and closing their transport kills a child that is alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from sidecar.protocol.bounds import BASH_KILL_S, BASH_TERM_GRACE_S

UMASK = 0o022
"""Of commands: what they make is for the user. The worker's own is 077, for its own files."""
POLL_S = 0.01
"""Between two looks at a dying group, and at a child where the system has no pidfd."""


def start(
    argv: Sequence[str | bytes],
    cwd: Path,
    env: Mapping[str, str],
    output_fd: int,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a child in a new session: no terminal, empty stdin, both outputs to `output_fd`.

    Its pid is its group. Raises OSError. Call it from the loop's thread: a parent-death signal
    fires when the *thread* that forked ends.
    """
    return subprocess.Popen(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output_fd,
        stderr=output_fd,
        pass_fds=pass_fds,
        start_new_session=True,
        umask=UMASK,
    )


@contextlib.asynccontextmanager
async def ended_on_error(process: subprocess.Popen[bytes]) -> AsyncGenerator[None]:
    """End the whole group before an exception or a cancellation leaves the body.

    A normal end leaves alone what still runs in the group.
    """
    try:
        yield
    except BaseException:
        await end_group(process.pid)
        raise
    finally:
        process.poll()


async def wait_exit(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Whether the child exited within `timeout_s`; if so it is reaped, `returncode` is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await _exit(process)
    return process.poll() is not None


async def _exit(process: subprocess.Popen[bytes]) -> None:
    try:
        pidfd = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        return await _poll_until(lambda: process.poll() is not None)
    loop = asyncio.get_running_loop()
    exited = asyncio.Event()
    loop.add_reader(pidfd, exited.set)
    try:
        await exited.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


async def end_group(pgid: int, grace_s: float = BASH_TERM_GRACE_S) -> list[int]:
    """SIGTERM, `grace_s`, SIGKILL; returns the pids still alive after BASH_KILL_S.

    Such pids are in state D or another user's. A cancellation of the caller is raised only
    when the group has been dealt with.
    """
    return await end_groups([pgid], grace_s)


async def end_groups(pgids: Iterable[int], grace_s: float = BASH_TERM_GRACE_S) -> list[int]:
    """The same for several, at once."""
    ending = asyncio.gather(*(_end_group(pgid, grace_s) for pgid in pgids))
    cancelled: asyncio.CancelledError | None = None
    while not ending.done():
        try:
            await asyncio.wait([ending])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        raise cancelled
    return [pid for left in ending.result() for pid in left]


async def _end_group(pgid: int, grace_s: float) -> list[int]:
    if not _ask_to_end(pgid):
        return []
    try:
        await wait_gone(pgid, grace_s)
    finally:
        # Always: a process whose first thread has ended looks like a zombie and may be alive,
        # and a loop that shuts down cancels this task itself.
        _signal(pgid, signal.SIGKILL)
    await wait_gone(pgid, BASH_KILL_S)
    return group_members(pgid)


def _ask_to_end(pgid: int) -> bool:
    """SIGTERM; whether the group exists. Not to the bwrap that leads a jail's: its own end would
    kill all inside at once, and they could not clean up."""
    if not _leads_jail(pgid):
        return _signal(pgid, signal.SIGTERM)
    for pid in group_members(pgid):
        if pid != pgid:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGTERM)
    return _signal(pgid, 0)


def _leads_jail(pid: int) -> bool:
    try:
        return psutil.Process(pid).name() == "bwrap"
    except psutil.Error:
        return False


async def wait_gone(pgid: int, timeout_s: float) -> None:
    """Until the group is gone, at most `timeout_s`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await _poll_until(lambda: not group_members(pgid))


async def _poll_until(done: Callable[[], bool]) -> None:
    while not done():  # noqa: ASYNC110 -- nothing tells us of it
        await asyncio.sleep(POLL_S)


def group_members(pgid: int) -> list[int]:
    """Live processes of a group. Zombies do not count, though `killpg(pgid, 0)` finds them:
    those that are not our children stay until whoever is their reaper comes round."""
    if not _signal(pgid, 0):
        return []
    return [pid for pid in psutil.pids() if _is_live_member(pid, pgid)]


def _is_live_member(pid: int, pgid: int) -> bool:
    try:
        return os.getpgid(pid) == pgid and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (OSError, psutil.Error):
        return False


def _signal(pgid: int, number: int) -> bool:
    """Whether the group exists; one we may not signal does (macOS says so of zombies too)."""
    try:
        os.killpg(pgid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def holders(fd: int, inode: int) -> list[int]:
    """Live processes whose descriptor `fd` is the pipe `inode`; none where there is no /proc."""
    return [pid for pid in psutil.pids() if _link(pid, fd) == f"pipe:[{inode}]"]


def _link(pid: int, fd: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}")  # noqa: PTH115 -- not a path, a pipe's name
    except OSError:
        return ""
