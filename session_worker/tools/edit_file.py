"""The `edit_file` tool: exact replacements in a file the model has read, all or none of them.

Called by the dispatcher. Changes no byte but those replaced: line ends, byte order mark, encoding
and what is no text at all stay as they are.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from session_worker.tools import client_files
from session_worker.tools.client_files import ClientFile
from session_worker.tools.confine import NotFound, Refused, locate, open_file, shown
from session_worker.tools.edit_text import EDIT_BYTES, Edit, Edited, apply, places
from session_worker.tools.file_text import decode, is_binary
from session_worker.tools.file_write import IsCancelled, file_change, in_thread, save
from session_worker.tools.read_file import FILE_TIMEOUT_S
from session_worker.tools.spec import FileChange, ToolContext, ToolResult, ToolSpec
from session_worker.tools.truncate import size_text

DESCRIPTION = f"""\
Replace exact text in a file that was read in this session. Edits apply in order, each to the \
result of the one before; if one fails, none is made. Every old_string must match exactly once, \
whitespace included, unless replace_all is set. Line ends and encoding are kept; write \\n for a \
line end. Files up to {size_text(EDIT_BYTES)}."""


class EditParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: str = Field(description="relative to the session's directory, or absolute")
    edits: list[Edit] = Field(min_length=1)


async def _run(params: EditParams, ctx: ToolContext) -> ToolResult:
    try:
        path = await asyncio.to_thread(locate, params.path, ctx)
        file = await client_files.opened(path, ctx, to_write=True)
        if file is not None and file.content is not None and file.may_be_written(ctx):
            return await _edit_in_client(file, file.content, params, ctx)
        return await in_thread(lambda is_cancelled: _edit(path, params, ctx, is_cancelled))
    except Refused as refusal:
        return ToolResult(str(refusal), is_error=True)


async def _edit_in_client(
    file: ClientFile, raw: bytes, params: EditParams, ctx: ToolContext
) -> ToolResult:
    label = shown(file.path, ctx)
    if problem := file.problem(ctx.seen):
        raise Refused(f"{label} was not changed: {problem}")
    _check_size(len(raw), label)
    new, edited = await asyncio.to_thread(_edited, raw, params, label)
    await client_files.save(file, new.decode(), ctx)
    return _told(file.path, raw, new, edited, label)


def _edit(
    path: Path, params: EditParams, ctx: ToolContext, is_cancelled: IsCancelled
) -> ToolResult:
    label = shown(path, ctx)
    raw = _content(path, ctx, is_checked=True)
    new, edited = _edited(raw, params, label)
    # `save` finds the file as it was seen, so it is the one that was read just now.
    save(path, new, ctx, is_cancelled)
    return _told(path, raw, new, edited, label)


def _preview(params: EditParams, ctx: ToolContext) -> FileChange | None:
    """By what the disk has: a client is not asked for a file before there is a permission."""
    path = locate(params.path, ctx)
    raw = _content(path, ctx, is_checked=False)
    return file_change(path, raw, _edited(raw, params, shown(path, ctx))[0])


def _content(path: Path, ctx: ToolContext, *, is_checked: bool) -> bytes:
    """Of a file that the model has seen as it is, where that is checked."""
    label = shown(path, ctx)
    try:
        fd = open_file(path, ctx, os.O_RDONLY)
    except NotFound as missing:
        raise NotFound(f"{missing}; write_file makes new files") from None
    try:
        found = os.fstat(fd)
        if is_checked and (problem := ctx.seen.problem(path, found)):
            raise Refused(f"{label} was not changed: {problem}")
        _check_size(found.st_size, label)
        return os.pread(fd, found.st_size, 0)
    finally:
        os.close(fd)


def _check_size(size: int, label: str) -> None:
    if size > EDIT_BYTES:
        limit = size_text(EDIT_BYTES)
        raise Refused(f"{label} has {size_text(size)}, more than {limit}; use bash to change it")


def _edited(raw: bytes, params: EditParams, label: str) -> tuple[bytes, Edited]:
    if is_binary(raw):
        raise Refused(f"{label} is binary; use bash to change it")
    try:
        old = decode(raw)
    except UnicodeDecodeError as error:
        raise Refused(f"{label} is not valid {error.encoding}; use bash to change it") from None
    if old.is_legacy and not all(edit.new_string.isascii() for edit in params.edits):
        raise Refused(f"{label} is not UTF-8, but new_string would be; use bash to change it")
    edited = apply(old.text, params.edits)
    return old.encode(edited.text), edited


def _told(path: Path, raw: bytes, new: bytes, edited: Edited, label: str) -> ToolResult:
    change = file_change(path, raw, new)
    count = len(edited.lines)
    return ToolResult(
        f"edited {label}: {count} replacement{'s' if count > 1 else ''} at {places(edited.lines)}",
        meta={"bytes": len(new), "replacements": count},
        changes=[change] if change else [],
    )


def _title(params: EditParams) -> str:
    return f"Edit {shown(params.path)}"


EDIT_FILE = ToolSpec(
    name="edit_file",
    description=DESCRIPTION,
    params=EditParams,
    handler=_run,
    kind="edit",
    read_only=False,
    render=_title,
    family="edit",
    paths=lambda params: [params.path],
    timeout_s=FILE_TIMEOUT_S,
    preview=_preview,
)
