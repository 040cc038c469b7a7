"""The `read_file` tool: text by lines, images and PDFs whole.

Called by the dispatcher. Never blocks on what is no regular file, never reads more than a page
needs, and changes nothing but the list of files the model has seen.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import difflib
import itertools
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from session_worker import images
from session_worker.tools import client_files, file_lines
from session_worker.tools.confine import NotFound, Refused, locate, open_file, shown
from session_worker.tools.file_lines import LINE_CHARS, LINES_MAX, Page, Source
from session_worker.tools.file_text import BINARY_HEAD_BYTES, PDF, is_binary, is_image, sniff
from session_worker.tools.spec import Block, ToolContext, ToolResult, ToolSpec
from session_worker.tools.truncate import size_text
from sidecar.protocol.bounds import MIB

IMAGE_BASE64_BYTES = 5 * MIB
"""Of an image as it is sent: models see no more in larger ones (tools-and-ux.md §1.3)."""
PDF_BYTES = 20 * MIB
"""A request may have 32 MB, and base64 makes 27 MB of this."""
UTF16_BYTES = 16 * MIB
"""Of a UTF-16 file, which is read whole: its lines cannot be found in its bytes."""
CLOSE_NAMES = 3
NAMES_LOOKED_AT = 5_000
"""Of a directory, for names close to one that is not there."""
FILE_TIMEOUT_S = 30.0
"""For one file on a slow disk or a network; a hung one must not hold the run."""

DESCRIPTION = f"""\
Read a file. Text comes with a line number and a tab before each line, which are not part of the \
file: at most {LINES_MAX} lines or 50 KB at once, lines cut at {LINE_CHARS} characters; a note \
says where to go on. A negative offset counts from the end. Images (PNG, JPEG, GIF, WebP) and PDFs \
are shown as such. Not for directories and other binary files."""


class ReadParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: str = Field(description="relative to the session's directory, or absolute")
    offset: int = Field(default=1, description="first line, from 1; -20: the last 20 lines")
    limit: int = Field(default=LINES_MAX, ge=1, description=f"lines, at most {LINES_MAX}")


async def _run(params: ReadParams, ctx: ToolContext) -> ToolResult:
    try:
        path = await asyncio.to_thread(locate, params.path, ctx)
        file = await client_files.opened(path, ctx)
        if file is not None and file.text is not None:
            result = await asyncio.to_thread(_shown, file.text, params, shown(path, ctx))
            file.note(ctx.seen)
            return result
        result, found = await asyncio.to_thread(_read, path, params, ctx)
    except Refused as refusal:
        return ToolResult(str(refusal), is_error=True)
    # As it was before it was read: if somebody wrote meanwhile, it counts as changed.
    ctx.seen.note(path, found)
    return result


def _shown(text: str, params: ReadParams, label: str) -> ToolResult:
    """A page of what a client has."""
    data = text.removeprefix(client_files.MARK).encode()
    source = Source(len(data), lambda count, at: data[at : at + count])
    return _paged(source, len(data), [], params, label)


def _read(path: Path, params: ReadParams, ctx: ToolContext) -> tuple[ToolResult, os.stat_result]:
    try:
        fd = open_file(path, ctx, os.O_RDONLY)
    except NotFound as missing:
        raise NotFound(f"{missing}{_close_names(path, ctx)}") from None
    try:
        found = os.fstat(fd)
        head = os.pread(fd, BINARY_HEAD_BYTES, 0)
        if is_image(head):
            result = _image(fd, found.st_size, shown(path, ctx))
        elif head.startswith(PDF):
            result = _pdf(fd, found.st_size, shown(path, ctx))
        else:
            result = _text(fd, found.st_size, head, params, shown(path, ctx))
        return result, found
    finally:
        os.close(fd)


def _text(fd: int, size: int, head: bytes, params: ReadParams, label: str) -> ToolResult:
    if is_binary(head):
        raise Refused(f"{label} is binary ({size_text(size)}); use bash to look at it")
    codec, bom = sniff(head)
    if codec == "utf-8":
        source = Source(size - len(bom), lambda count, at: os.pread(fd, count, at + len(bom)))
        notes: list[str] = []
    else:
        source, notes = _from_utf16(fd, size, codec, bom, label)
    return _paged(source, size, notes, params, label)


def _paged(
    source: Source, size: int, notes: list[str], params: ReadParams, label: str
) -> ToolResult:
    """What is asked for of a text of `size` bytes, with `notes` of where it is from."""
    if params.offset < 0 and source.size > file_lines.SCAN_BYTES:
        raise Refused(f"{label} is too large ({size_text(size)}) to count from its end; use bash")
    page = file_lines.page(source, params.offset, min(params.limit, LINES_MAX))
    notes = _notes(page, label) + notes
    if page.last < page.first and page.total:
        raise Refused(f"{label} has {_total(page)} lines, so none at offset {params.offset}")
    return ToolResult(
        page.text + (f"[{'; '.join(notes)}]" if notes else ""),
        meta={"bytes": size, "first": page.first, "last": page.last, "lines": page.total},
    )


def _from_utf16(fd: int, size: int, codec: str, bom: bytes, label: str) -> tuple[Source, list[str]]:
    if size > UTF16_BYTES:
        raise Refused(f"{label} is UTF-16 and too large ({size_text(size)}); use iconv in bash")
    notes = [codec.upper()]
    raw = os.pread(fd, size, len(bom))
    try:
        text = raw.decode(codec)
    except UnicodeDecodeError:
        text = raw.decode(codec, errors="replace")
        notes.append(f"invalid {codec.upper()} shown as \ufffd")
    data = text.encode()
    return Source(len(data), lambda count, at: data[at : at + count]), notes


def _notes(page: Page, label: str) -> list[str]:
    if not page.total:
        return [f"{label} is empty"]
    notes: list[str] = []
    if page.last < page.total or not page.is_whole:
        more = f", continue with offset={page.last + 1}" if page.last < page.total else ""
        notes.append(f"lines {page.first}–{page.last} of {_total(page)}{more}")
    elif page.first > 1:
        notes.append(f"lines {page.first}–{page.last} of {page.total}")
    if not page.is_whole:
        notes.append(f"only the first {size_text(file_lines.SCAN_BYTES)} can be read; use bash")
    if not page.is_valid:
        notes.append("bytes that are not UTF-8 are shown as \ufffd; edit_file keeps them")
    return notes


def _total(page: Page) -> str:
    return str(page.total) if page.is_whole else f"more than {page.total}"


def _image(fd: int, size: int, label: str) -> ToolResult:
    if 4 * ((size + 2) // 3) > IMAGE_BASE64_BYTES:
        limit = size_text(IMAGE_BASE64_BYTES * 3 // 4)
        raise Refused(f"{label} is an image of {size_text(size)}, more than {limit}; scale it down")
    block = images.sound(_block("image", "image/png", os.pread(fd, size, 0)))
    if isinstance(block, str):
        raise Refused(f"{label} looks like an image that cannot be shown: {block}")
    return _shown_whole(block, size, label)


def _pdf(fd: int, size: int, label: str) -> ToolResult:
    if size > PDF_BYTES:
        limit = size_text(PDF_BYTES)
        raise Refused(f"{label} is a PDF of {size_text(size)}, more than {limit}; use bash")
    return _shown_whole(_block("document", "application/pdf", os.pread(fd, size, 0)), size, label)


def _block(kind: str, media_type: str, data: bytes) -> Block:
    encoded = base64.b64encode(data).decode()
    return {
        "type": kind,
        "source": {"type": "base64", "media_type": media_type, "data": encoded},
    }


def _shown_whole(block: Block, size: int, label: str) -> ToolResult:
    media_type = block["source"]["media_type"]
    text = {"type": "text", "text": f"{label}: {media_type}, {size_text(size)}"}
    return ToolResult([text, block], meta={"bytes": size, "media_type": media_type})


def _close_names(path: Path, ctx: ToolContext) -> str:
    """What else is there, of names like the one that is not."""
    with contextlib.suppress(Refused, OSError):
        fd = open_file(path.parent, ctx, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                names = [entry.name for entry in itertools.islice(entries, NAMES_LOOKED_AT)]
        finally:
            os.close(fd)
        folded = {name.casefold(): name for name in names}
        close = difflib.get_close_matches(path.name.casefold(), folded, CLOSE_NAMES)
        if close:
            likely = (shown(path.with_name(folded[name]), ctx) for name in close)
            return f"; did you mean: {', '.join(likely)}"
    return ""


def _title(params: ReadParams) -> str:
    lines = f" from line {params.offset}" if params.offset != 1 else ""
    return f"Read {shown(params.path)}{lines}"


READ_FILE = ToolSpec(
    name="read_file",
    description=DESCRIPTION,
    params=ReadParams,
    handler=_run,
    kind="read",
    read_only=True,
    render=_title,
    family="read",
    paths=lambda params: [params.path],
    timeout_s=FILE_TIMEOUT_S,
)
