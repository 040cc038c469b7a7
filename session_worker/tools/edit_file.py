"""The `edit_file` tool: exact replacements in a file the model has read, all or none of them.

Called by the dispatcher. Changes no byte but those replaced: line ends, byte order mark, encoding
and what is no text at all stay as they are.
"""

from __future__ import annotations

import os

from pydantic import BaseModel, ConfigDict, Field

from session_worker.tools.confine import NotFound, Refused, locate, open_file, shown
from session_worker.tools.edit_text import EDIT_BYTES, Edit, apply, places
from session_worker.tools.file_text import decode, is_binary
from session_worker.tools.file_write import IsCancelled, file_change, in_thread, save
from session_worker.tools.read_file import FILE_TIMEOUT_S
from session_worker.tools.spec import ToolContext, ToolResult, ToolSpec
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
        return await in_thread(lambda is_cancelled: _edit(params, ctx, is_cancelled))
    except Refused as refusal:
        return ToolResult(str(refusal), is_error=True)


def _edit(params: EditParams, ctx: ToolContext, is_cancelled: IsCancelled) -> ToolResult:
    path = locate(params.path, ctx)
    label = shown(path, ctx)
    try:
        fd = open_file(path, ctx, os.O_RDONLY)
    except NotFound as missing:
        raise NotFound(f"{missing}; write_file makes new files") from None
    try:
        found = os.fstat(fd)
        if problem := ctx.seen.problem(path, found):
            raise Refused(f"{label} was not changed: {problem}")
        if found.st_size > EDIT_BYTES:
            size, limit = size_text(found.st_size), size_text(EDIT_BYTES)
            raise Refused(f"{label} has {size}, more than {limit}; use bash to change it")
        raw = os.pread(fd, found.st_size, 0)
    finally:
        os.close(fd)
    if is_binary(raw):
        raise Refused(f"{label} is binary; use bash to change it")
    try:
        old = decode(raw)
    except UnicodeDecodeError as error:
        raise Refused(f"{label} is not valid {error.encoding}; use bash to change it") from None
    if old.is_legacy and not all(edit.new_string.isascii() for edit in params.edits):
        raise Refused(f"{label} is not UTF-8, but new_string would be; use bash to change it")
    edited = apply(old.text, params.edits)
    new = old.encode(edited.text)
    # `save` finds the file as it was seen, so it is the one that was read just now.
    save(path, new, ctx, is_cancelled)
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
)
