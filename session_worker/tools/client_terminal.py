"""A command in the terminal of the client that a run belongs to (acp.md §2.2, `terminal/*`).

Called by `bash` where the settings want it so. It is then no child of the session: its output, its
limits and its end are the client's. What can be done about its end is done: it is killed when its
time is over or the call is cancelled, and its terminal is always released.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from session_worker.editor import TERMINAL, Done, Editor, EditorFailed
from session_worker.tools.command import (
    CWD_BYTES,
    as_argument,
    command_environment,
    is_directory,
)
from session_worker.tools.spec import ToolContext
from session_worker.tools.spill import create_file
from sidecar.protocol import bounds


class _Created(BaseModel):
    terminal_id: str = Field(alias="terminalId")


class Exit(BaseModel):
    code: int | None = Field(default=None, alias="exitCode")
    signal: str | None = None


class _Output(BaseModel):
    output: str
    truncated: bool = False
    exit: Exit | None = Field(default=None, alias="exitStatus")


@dataclass(frozen=True)
class Ran:
    """How it went; `exit` is None if that is not known, `broken` is why it was ended or lost.
    `cwd` is where the script exited, `is_cut` that the beginning of the output is missing."""

    output: str
    is_cut: bool
    exit: Exit | None
    broken: str | None
    cwd: Path | None


async def run(script: str, workdir: Path, timeout_s: int, ctx: ToolContext, editor: Editor) -> Ran:
    """Raises `EditorFailed` if it could not be started, or nobody knows whether it was."""
    with contextlib.ExitStack() as stack:
        argument, cwd_file = stack.enter_context(_script(script, ctx))
        env = command_environment(ctx.env)
        params: dict[str, Any] = {
            "command": "bash",
            "args": ["--noprofile", "--norc", "-c", argument],
            "env": [{"name": name, "value": value} for name, value in env.items()],
            "cwd": str(workdir),
            "outputByteLimit": bounds.BASH_RESULT_CHARS,
        }
        # if it is cancelled, its terminal must be known all the same
        created = await editor.ask(TERMINAL, _Created, params, settle_s=bounds.CLIENT_SETTLE_S)
        terminal = _Terminal(editor, created.terminal_id)
        try:
            _check_cancelled()
            editor.show(_shown(ctx.call_id, created.terminal_id))
            exited, broken = await terminal.wait(timeout_s)
            output = await terminal.output()
        except asyncio.CancelledError:
            await terminal.end("kill")
            raise
        finally:
            await terminal.end("release")
        if output is None:
            broken = broken or "the client does not tell what became of it"
            return Ran("", False, exited, broken, None)
        exited = exited or output.exit
        return Ran(output.output, output.truncated, exited, broken, _directory(cwd_file))


@dataclass(frozen=True)
class _Terminal:
    editor: Editor
    terminal_id: str

    async def wait(self, timeout_s: int) -> tuple[Exit | None, str | None]:
        """How it exited; or why it had to be ended, or is lost."""
        try:
            exited = await self._ask("wait_for_exit", Exit, timeout_s)
        except EditorFailed as failure:
            if not failure.fell_silent:
                return None, f"lost: the client {failure}"
            is_ended = await self.end("kill")
            doubt = "" if is_ended else ", and may still run"
            return None, f"ended: timed out after {timeout_s}s{doubt}"
        return exited, None

    async def output(self) -> _Output | None:
        with contextlib.suppress(EditorFailed):
            return await self._ask("output", _Output, bounds.CLIENT_CALL_S)
        return None

    async def end(self, how: str) -> bool:
        """`kill` or `release`; whether the client says that it is done."""
        with contextlib.suppress(EditorFailed):
            await self._ask(how, Done, bounds.CLIENT_SETTLE_S)
            return True
        return False

    async def _ask(self, what: str, shape: type[Any], timeout_s: float) -> Any:
        params = {"terminalId": self.terminal_id}
        return await self.editor.ask(f"terminal/{what}", shape, params, timeout_s=timeout_s)


@contextlib.contextmanager
def _script(script: str, ctx: ToolContext) -> Generator[tuple[str, Path]]:
    """What bash is given, and the file that it writes its directory to when it exits."""
    with contextlib.ExitStack() as stack:
        fd, cwd_file = create_file(ctx, ".cwd")
        stack.callback(cwd_file.unlink, missing_ok=True)
        os.close(fd)
        argument = stack.enter_context(as_argument(script, ctx))
        trap = f"{{ builtin pwd -P >|{shlex.quote(str(cwd_file))}; }} 2>/dev/null || :"
        yield f"exec </dev/null; trap {shlex.quote(trap)} EXIT; {argument}", cwd_file


def _check_cancelled() -> None:
    """The answer to `terminal/create` may have come in spite of a cancellation."""
    task = asyncio.current_task()
    if task and task.cancelling():
        raise asyncio.CancelledError


def _shown(call_id: str, terminal_id: str) -> dict[str, Any]:
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": call_id,
        "content": [{"type": "terminal", "terminalId": terminal_id}],
    }


def _directory(cwd_file: Path) -> Path | None:
    with contextlib.suppress(OSError, ValueError):
        cwd = Path(os.fsdecode(cwd_file.read_bytes()[:CWD_BYTES]).removesuffix("\n"))
        return cwd if cwd.is_absolute() and is_directory(cwd) else None
    return None
