"""The `write_file` tool: a whole file, new or instead of one the model has read.

Called by the dispatcher. Never writes over a file that is not as the model last saw it.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from session_worker.tools import client_files
from session_worker.tools.client_files import ClientFile
from session_worker.tools.confine import NotFound, Refused, locate, open_file, shown
from session_worker.tools.file_write import CHANGE_BYTES, IsCancelled, file_change, in_thread, save
from session_worker.tools.read_file import FILE_TIMEOUT_S
from session_worker.tools.spec import FileChange, ToolContext, ToolResult, ToolSpec
from session_worker.tools.truncate import size_text

DESCRIPTION = """\
Write a whole file, as UTF-8 and exactly as given. Missing directories are made. A file that \
exists must have been read in this session and not have changed since. To change parts of a file, \
use edit_file."""


class WriteParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: str = Field(description="relative to the session's directory, or absolute")
    content: str = Field(description="all of the file, final newline included")


async def _run(params: WriteParams, ctx: ToolContext) -> ToolResult:
    try:
        data = _encoded(params)
        path = await asyncio.to_thread(locate, params.path, ctx)
        file = await client_files.opened(path, ctx, to_write=True)
        if file is not None and file.may_be_written(ctx):
            return await _write_in_client(file, data, ctx)
        return await in_thread(lambda is_cancelled: _write(path, data, ctx, is_cancelled))
    except Refused as refusal:
        return ToolResult(str(refusal), is_error=True)


async def _write_in_client(file: ClientFile, data: bytes, ctx: ToolContext) -> ToolResult:
    if file.content is not None and (problem := file.problem(ctx.seen)):
        raise Refused(f"{shown(file.path, ctx)} was not changed: {problem}")
    await client_files.save(file, data.decode(), ctx)
    return _told(file.path, file.content, data, ctx)


def _write(path: Path, data: bytes, ctx: ToolContext, is_cancelled: IsCancelled) -> ToolResult:
    old = _content(path, ctx)
    save(path, data, ctx, is_cancelled)
    return _told(path, old, data, ctx)


def _preview(params: WriteParams, ctx: ToolContext) -> FileChange | None:
    path = locate(params.path, ctx)
    return file_change(path, _content(path, ctx), _encoded(params))


def _encoded(params: WriteParams) -> bytes:
    try:
        return params.content.encode()
    except UnicodeEncodeError as error:
        raise Refused(
            f"content is not valid Unicode at character {error.start}: {error.reason}"
        ) from None


def _told(path: Path, old: bytes | None, data: bytes, ctx: ToolContext) -> ToolResult:
    label = shown(path, ctx)
    change = file_change(path, old, data)
    lines = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    verb = "created" if old is None else "replaced"
    return ToolResult(
        f"{verb} {label}: {lines} lines, {size_text(len(data))}",
        meta={"bytes": len(data)} | ({} if change else {"diff": "too large or not text"}),
        changes=[change] if change else [],
    )


def _content(path: Path, ctx: ToolContext) -> bytes | None:
    """Enough of a file to show what changed, or to see that it is too much; None of a new one."""
    try:
        fd = open_file(path, ctx, os.O_RDONLY)
    except NotFound:
        return None
    try:
        return os.pread(fd, CHANGE_BYTES + 1, 0)
    finally:
        os.close(fd)


def _title(params: WriteParams) -> str:
    return f"Write {shown(params.path)}"


WRITE_FILE = ToolSpec(
    name="write_file",
    description=DESCRIPTION,
    params=WriteParams,
    handler=_run,
    kind="edit",
    read_only=False,
    render=_title,
    family="edit",
    paths=lambda params: [params.path],
    timeout_s=FILE_TIMEOUT_S,
    preview=_preview,
)
