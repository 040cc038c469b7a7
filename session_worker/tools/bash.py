"""The `bash` tool: what the model may ask for, and what it is told about the outcome.

Called by the dispatcher. Never keeps a shell: every call is a new bash, and of its state only
the working directory carries over.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from session_worker.editor import Editor, EditorFailed
from session_worker.tools import client_terminal
from session_worker.tools.command import (
    Command,
    aftermath,
    end,
    is_directory,
    outlast,
    started,
    watch,
)
from session_worker.tools.jobs import Job, Life, TooManyJobs
from session_worker.tools.spec import ToolContext, ToolResult, ToolSpec
from session_worker.tools.truncate import clean, excerpt, json_safe, size_text, title
from sidecar.protocol.bounds import (
    BASH_HEAD_CHARS,
    BASH_TAIL_CHARS,
    BASH_TIMEOUT_DEFAULT_S,
    BASH_TIMEOUT_MAX_S,
    JOBS_MAX,
)

PIDS_SHOWN = 10
"""Processes left running that one result names."""

DESCRIPTION = f"""\
Run a bash script. Every call is a fresh bash: the working directory carries over to the next \
call; variables, functions and shell options do not. stdin is empty and there is no terminal, so \
programs that ask questions fail: pass flags such as -y. After timeout_s seconds (at most \
{BASH_TIMEOUT_MAX_S}) the script and its children are ended. What takes longer, or serves, goes \
with run_in_background: it gets a job id at once and lives until the session ends. stdout and \
stderr come back as one text; of a long one you get start and end, and the name of the file that \
has all of it."""


class BashParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    command: str = Field(
        description="Bash script; runs in a fresh bash, cwd carries over, stdin is empty"
    )
    timeout_s: int = Field(
        default=BASH_TIMEOUT_DEFAULT_S,
        ge=1,
        le=BASH_TIMEOUT_MAX_S,
        description=f"1-{BASH_TIMEOUT_MAX_S}, default {BASH_TIMEOUT_DEFAULT_S}",
    )
    workdir: str | None = Field(
        default=None, description="run here without changing the carried cwd"
    )
    description: str | None = Field(default=None, description="5-10 words for the user")
    run_in_background: bool = Field(
        default=False, description="return a job id at once; read it with job_output"
    )


async def _run(params: BashParams, ctx: ToolContext) -> ToolResult:
    if problem := _unrunnable(params.command):
        return ToolResult(problem, is_error=True)
    lost = "" if is_directory(ctx.shell.cwd) else _shown(ctx.shell.cwd, ctx.root)
    if lost:
        ctx.shell.cwd = ctx.root
    workdir = ctx.shell.cwd / (params.workdir or "")
    if not is_directory(workdir):
        return ToolResult(json_safe(f"no such directory: {workdir}"), is_error=True)
    editor = ctx.editor if ctx.client_terminal and not params.run_in_background else None
    if editor is not None and editor.has_terminal:
        return await _in_client(params, workdir, ctx, editor)
    with contextlib.ExitStack() as stack:
        began = time.monotonic()
        try:
            if params.run_in_background:
                ctx.jobs.check_room()
            command = stack.enter_context(started(params.command, workdir, ctx))
        except TooManyJobs:
            return ToolResult(f"{JOBS_MAX} background jobs run already; stop one", is_error=True)
        except OSError as error:
            return ToolResult(json_safe(f"bash could not be started: {error}"), is_error=True)
        if params.run_in_background:
            return _in_background(params, command, stack.pop_all(), ctx)
        try:
            broken = await watch(command, ctx.within(params.timeout_s), ctx.emit_output)
        except BaseException:
            await end(command)
            raise
        finally:
            command.child.poll()
        seconds = time.monotonic() - began
        cwd, running = aftermath(command)
        if cwd and not params.workdir:
            ctx.shell.cwd = cwd
        shown = excerpt(command.output_fd, BASH_HEAD_CHARS, BASH_TAIL_CHARS)
        job: Job | None = None
        if running:
            life = partial(_left, command, stack.pop_all())
            job = _job(params, command, life, ctx)
        elif shown.cut:
            command.keep()

    code: int | None = command.child.returncode
    killed_by = _signal_name(-code) if code is not None and code < 0 else None
    file = json_safe(str(command.output)) if shown.cut or job else None
    footer = [
        broken or (f"killed by {killed_by}" if killed_by else f"exit {code}"),
        f"{seconds:.1f}s",
        f"cwd {_shown(ctx.shell.cwd, ctx.root)}" + (f" ({lost} is gone)" if lost else ""),
    ]
    if shown.cut:
        size = size_text(shown.size)
        footer.append(f"{shown.lines} lines/{size}, middle omitted; full: {file}")
    if job:
        pids = ", ".join(running[:PIDS_SHOWN]) + (", …" if running[PIDS_SHOWN:] else "")
        footer.append(
            f"still running as {job.job_id} until the session ends: pid {pids}; output: {file}"
        )
    text = shown.text.replace(command.prefix, "").rstrip("\n") or "(no output)"
    return ToolResult(
        f"{text}\n[{json_safe(' · '.join(footer))}]",
        is_error=broken is not None or code != 0,
        meta={
            "exit_code": None if killed_by else code,
            "signal": killed_by,
            "seconds": round(seconds, 3),
            "bytes": shown.size,
            "lines": shown.lines,
            "truncated": shown.cut,
            "file": file,
        },
    )


async def _in_client(
    params: BashParams, workdir: Path, ctx: ToolContext, editor: Editor
) -> ToolResult:
    began = time.monotonic()
    try:
        ran = await client_terminal.run(params.command, workdir, params.timeout_s, ctx, editor)
    except EditorFailed as failure:
        outcome = "" if failure.is_certain else "; it may have started it all the same"
        text = f"bash was not started in the client's terminal: the client {failure}{outcome}"
        return ToolResult(text, is_error=True)
    except OSError as error:
        return ToolResult(json_safe(f"bash could not be started: {error}"), is_error=True)
    seconds = time.monotonic() - began
    if ran.cwd and not params.workdir:
        ctx.shell.cwd = ran.cwd
    code, killed_by = (ran.exit.code, ran.exit.signal) if ran.exit else (None, None)
    known = f"killed by {killed_by}" if killed_by else f"exit {code}"
    footer = [
        ran.broken or known,
        f"{seconds:.1f}s",
        f"cwd {_shown(ctx.shell.cwd, ctx.root)}",
        "in the client's terminal",
    ]
    if ran.is_cut:
        footer.append("beginning omitted")
    text = clean(ran.output).strip("\n") or "(no output)"
    return ToolResult(
        f"{text}\n[{json_safe(' · '.join(footer))}]",
        is_error=ran.broken is not None or code != 0,
        meta={"exit_code": code, "signal": killed_by, "seconds": round(seconds, 3)},
    )


def _in_background(
    params: BashParams, command: Command, files: contextlib.ExitStack, ctx: ToolContext
) -> ToolResult:
    job = _job(params, command, partial(_life, command, files), ctx)
    return ToolResult(
        f"{job.job_id} runs in the background; read it with job_output, end it with job_stop\n"
        f"[output: {json_safe(str(command.output))}]",
        meta={"job_id": job.job_id, "pid": command.child.pid, "file": str(command.output)},
    )


def _job(params: BashParams, command: Command, life: Life, ctx: ToolContext) -> Job:
    command.keep()
    return ctx.jobs.add(_title(params), command.output, command.prefix, life, partial(end, command))


async def _life(command: Command, files: contextlib.ExitStack) -> str:
    """Until a background command and all it has started have ended; how."""
    with files:
        began = time.monotonic()
        broken = await watch(command, None, lambda _: None)
        code = command.child.poll()
        how = f"killed by {_signal_name(-code)}" if code and code < 0 else f"exit {code}"
        broken = broken or await outlast(command)
        return f"{broken or how} after {time.monotonic() - began:.0f}s"


async def _left(command: Command, files: contextlib.ExitStack) -> str:
    """Until what a command left running is gone."""
    with files:
        return await outlast(command) or "nothing of it runs any more"


def _unrunnable(command: str) -> str | None:
    """Why a command cannot be run, said to the model."""
    if "\0" in command:
        return "the command contains a NUL character, which no program can be given"
    try:
        command.encode()
    except UnicodeEncodeError as error:
        return f"the command is not valid Unicode at character {error.start}: {error.reason}"
    if command.lstrip().startswith(("[", "{")):
        with contextlib.suppress(ValueError, RecursionError):
            kind = type(json.loads(command)).__name__
            return f"command must be a bash script as plain text; this is a JSON {kind}"
    return None


def _shown(path: Path, root: Path) -> str:
    """A directory relative to the session's where it is inside."""
    with contextlib.suppress(ValueError):
        return str(path.resolve().relative_to(root.resolve()))
    return str(path)


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _title(params: BashParams) -> str:
    """The command comes first: a description is the model's word for it, and may be wrong."""
    first, more, _ = params.command.strip().partition("\n")
    said = first + ("…" if more else "")
    return title(f"{said} — {params.description}" if params.description else said)


BASH = ToolSpec(
    name="bash",
    description=DESCRIPTION,
    params=BashParams,
    handler=_run,
    kind="execute",
    read_only=False,
    render=_title,
    family="bash",
)
