"""One bash script as a process: what it is started with, how it is watched, what it leaves.

Called by `bash` alone. Never reads output through a pipe: a background child would hold the
pipe, and the call with it (tools-and-ux.md §0.2).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import math
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

from session_worker import oom
from session_worker.tools import process
from session_worker.tools.spec import ToolContext
from session_worker.tools.spill import create_file
from session_worker.tools.truncate import newest, size_text
from sidecar.protocol.bounds import (
    BASH_ARGV_BYTES,
    BASH_OUTPUT_BYTES,
    BASH_TERM_GRACE_S,
    BASH_WATCH_S,
    JOB_POLL_S,
    KIB,
    TOOL_OUTPUT_BYTES,
)
from sidecar.protocol.process_tree import SESSION_COOKIE

CWD_FD_MIN = 240
"""Lowest number of the descriptor that brings the directory back: above those that scripts
like (`exec 200>lock`), below the 256 descriptors macOS allows."""
CWD_BYTES = 64 * KIB
"""Read from that descriptor: a whole pipe, far above the longest path."""

NON_INTERACTIVE = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    # a directory that only looks like a repository must not become one, with hooks of its own
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.bareRepository",
    "GIT_CONFIG_VALUE_0": "explicit",
}
STEERING = frozenset({"BASH_ENV", "CDPATH", "ENV", "GLOBIGNORE", "RIPGREP_CONFIG_PATH"})
"""Variables that would make commands mean something else than the permission rules understood."""


@dataclass(frozen=True)
class Command:
    """A started script. `prefix` is our code on its first line, `keep` saves its output file.

    It writes its directory to descriptor `cwd_fd` when it exits; we read that from `cwd_pipe`.
    """

    child: subprocess.Popen[bytes]
    output_fd: int
    output: Path
    keep: Callable[[], object]
    prefix: str
    cwd_fd: int
    cwd_pipe: int


@contextlib.contextmanager
def started(script: str, workdir: Path, ctx: ToolContext) -> Generator[Command]:
    """Start bash and own its files, not its life. Raises OSError if it cannot be started."""
    with contextlib.ExitStack() as stack:
        output_fd, output = create_file(ctx, ".out")
        stack.callback(os.close, output_fd)
        unless_kept = stack.enter_context(contextlib.ExitStack())
        unless_kept.callback(output.unlink, missing_ok=True)
        script = stack.enter_context(as_argument(script, ctx))
        cwd_pipe, write_end = os.pipe()
        stack.callback(os.close, cwd_pipe)
        os.set_blocking(cwd_pipe, False)
        try:
            cwd_fd = fcntl.fcntl(write_end, fcntl.F_DUPFD_CLOEXEC, CWD_FD_MIN)
        finally:
            os.close(write_end)
        # On the script's own first line, so that bash's line numbers are the script's.
        trap = f"trap '{{ builtin pwd -P >&{cwd_fd}; }} 2>/dev/null || :' EXIT; "
        prefix = oom.shell_goes_first() + trap
        argv = ["bash", "--noprofile", "--norc", "-c", (prefix + script).encode()]
        try:
            child = ctx.launch(argv, workdir, command_environment(ctx.env), output_fd, [cwd_fd])
        finally:
            os.close(cwd_fd)
        yield Command(child, output_fd, output, unless_kept.pop_all, prefix, cwd_fd, cwd_pipe)


@contextlib.contextmanager
def as_argument(script: str, ctx: ToolContext) -> Generator[str]:
    """`script`, or what runs it where it is too long for an argument."""
    if len(script.encode()) <= BASH_ARGV_BYTES:
        yield script
        return
    fd, path = create_file(ctx, ".sh")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(script.encode())
        yield f". {shlex.quote(str(path))}"
    finally:
        path.unlink(missing_ok=True)


def command_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The caller has taken secrets out; nothing of ours passes here a second time."""
    private = ("ANTHROPIC_", "SIDECAR_")
    kept = {k: v for k, v in env.items() if k == SESSION_COOKIE or not k.startswith(private)}
    kept = {k: v for k, v in kept.items() if k not in STEERING}
    return kept | NON_INTERACTIVE


async def watch(
    command: Command, timeout_s: float | None, emit: Callable[[str], None]
) -> str | None:
    """Emit live text until the script exits; why it was ended if it had to be."""
    fd, pgid = command.output_fd, command.child.pid
    deadline = time.monotonic() + (math.inf if timeout_s is None else timeout_s)
    seen = 0
    while True:
        left = max(0.0, deadline - time.monotonic())
        exited = await process.wait_exit(command.child, min(BASH_WATCH_S, left))
        if exited:
            # The `tee` of `exec > >(tee log)` writes on for a moment after the script.
            await process.wait_gone(pgid, BASH_WATCH_S)
        text, seen = newest(fd, seen, TOOL_OUTPUT_BYTES)
        if text := text.replace(command.prefix, ""):
            emit(text)
        if flood := await _end_of_flood(command):
            return flood
        if exited:
            return None
        if left == 0:
            await end(command)
            return f"ended: timed out after {timeout_s}s"


async def outlast(command: Command) -> str | None:
    """Until nothing runs any more that an exited script has left; why it had to be ended."""
    looks = 0
    while looks % round(JOB_POLL_S / BASH_WATCH_S) or any(_left_running(command)):
        if flood := await _end_of_flood(command):
            return flood
        await asyncio.sleep(BASH_WATCH_S)
        looks += 1
    return None


async def _end_of_flood(command: Command) -> str | None:
    if os.fstat(command.output_fd).st_size <= BASH_OUTPUT_BYTES:
        return None
    # No grace: a flood that ignores SIGTERM would write gigabytes in it.
    await end(command, grace_s=0)
    os.ftruncate(command.output_fd, BASH_OUTPUT_BYTES)
    return f"ended: more than {size_text(BASH_OUTPUT_BYTES)} of output"


async def end(command: Command, grace_s: float = BASH_TERM_GRACE_S) -> list[int]:
    """End a script with all it has started, as `process.end_group` does."""
    pids, _ = _left_running(command)
    groups = {command.child.pid}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            groups.add(os.getpgid(pid))
    return await process.end_groups(groups, grace_s)


def aftermath(command: Command) -> tuple[Path | None, list[str]]:
    """The directory the script exited in, and the pids of what it left running.

    No directory: it was killed, ended in `exec`, or set an EXIT trap of its own.
    """
    raw = b""
    with contextlib.suppress(BlockingIOError):
        raw = os.read(command.cwd_pipe, CWD_BYTES)
    cwd = Path(os.fsdecode(raw.removesuffix(b"\n")))
    pids, held = _left_running(command)
    left = [str(pid) for pid in sorted(pids)] or ["unknown"] * held
    return cwd if cwd.is_absolute() and is_directory(cwd) else None, left


def _left_running(command: Command) -> tuple[set[int], bool]:
    """The live processes of a script, and whether any has inherited the directory's pipe: that is
    how those are found that have left the group."""
    held = True
    with contextlib.suppress(BlockingIOError):  # held: neither data nor the end
        # the directory itself may still be in it; not more: who writes on must not keep us here
        held = all(os.read(command.cwd_pipe, CWD_BYTES) for _ in range(2))
    pids = set(process.group_members(command.child.pid))
    if held:
        pids.update(process.holders(command.cwd_fd, os.fstat(command.cwd_pipe).st_ino))
    return pids, held


def is_directory(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 -- unlike Path.is_dir it never raises
