"""Child processes that search: started without an environment, read in a thread, always ended.

Called by `glob` and `grep`. Never puts what a child prints on disk, and never waits for a child
that has been told to go.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from session_worker.tools import process
from session_worker.tools.confine import is_inside, open_file
from session_worker.tools.search_job import FindJob, GrepJob
from session_worker.tools.spec import ToolContext
from sidecar.protocol.process_tree import SESSION_COOKIE

SEARCH_S = 20.0
"""For one search: what takes longer needs a narrower path (tools-and-ux.md §2)."""
SEARCH_EXIT_S = 5.0
"""From the end of a child's output to its own."""
SEARCH_TIMEOUT_S = 30.0
"""For a call as a whole: a search, and the end of a child that has to be killed."""


def start_directory(path: Path, ctx: ToolContext) -> ToolContext:
    """The context of a search below `path`: what is in it may be shown. Raises Refused."""
    os.close(open_file(path, ctx, os.O_RDONLY | os.O_DIRECTORY))
    return dataclasses.replace(ctx, extra_roots=(*ctx.extra_roots, path))


def leads_inside(path: Path, ctx: ToolContext) -> bool:
    """Whether what is found at `path` is in the session's directories, links resolved."""
    return is_inside(Path(os.path.realpath(path)), ctx)


def may_be_shown(path: Path, ctx: ToolContext) -> bool:
    """Whether it leads inside, and no rule keeps the model from reading it."""
    return leads_inside(path, ctx) and not ctx.hidden(Path(os.path.realpath(path)))


def python_child(job: FindJob | GrepJob) -> list[str]:
    """The command line of `search_child`. It imports the standard library and us: nothing that is
    installed, and nothing from where it runs."""
    options = ["-P", "-s", "-S", "-X", "utf8", "-W", "ignore"]
    kind = "find" if isinstance(job, FindJob) else "grep"
    fields = json.dumps(dataclasses.asdict(job))  # ASCII: names of any bytes pass through
    return [sys.executable, *options, "-m", "session_worker.tools.search_child", kind, fields]


async def run(
    argv: Sequence[str],
    cwd: Path,
    ctx: ToolContext,
    read: Callable[[BinaryIO], bool],
    timeout_s: float,
) -> int | None:
    """Start a child and have `read` take what it prints; its exit code.

    `read` runs in a thread and says whether it went to the end; if not, the child is ended and
    the answer is None. Raises TimeoutError, when `read` has seen all there was, and OSError.
    """
    read_end, write_end = os.pipe()
    output = os.fdopen(read_end, "rb")
    try:
        child = process.start(argv, cwd, _environment(ctx), write_end)
    except BaseException:
        output.close()
        raise
    finally:
        os.close(write_end)

    def reading() -> bool:
        with output:
            return read(output)

    # A killed child closes its end of the pipe: that is what ends the thread.
    done = asyncio.get_running_loop().run_in_executor(None, reading)
    async with process.ended_on_error(child):
        await asyncio.wait([done], timeout=timeout_s)
        in_time = done.done()
        if in_time and await done and await process.wait_exit(child, SEARCH_EXIT_S):
            return child.returncode
        await process.end_group(child.pid, grace_s=0)
        await done
    if not in_time:
        raise TimeoutError
    return None


def _environment(ctx: ToolContext) -> dict[str, str]:
    """Where our modules are, and the mark by which a session's processes are found."""
    env = {"PYTHONPATH": str(Path(__file__).parents[2])}
    with contextlib.suppress(KeyError):
        env[SESSION_COOKIE] = ctx.env[SESSION_COOKIE]
    return env
