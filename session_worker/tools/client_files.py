"""Files as the client has them open, unsaved changes included; and writing through the client.

Called by the file tools behind the permission, for a path that is confined already. Only UTF-8 text
inside the session's directories ever goes to the client: it opens the path itself, and the protocol
has no words for bytes. What the client gives is sent back as it was, but for what is replaced.
Some read CRLF as LF and write LF: they get the line ends of the disk. A mark that is not in their
text is not put there: who hides it writes it, too.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from session_worker.editor import Editor, EditorFailed
from session_worker.tools.confine import (
    NotFound,
    Refused,
    explained,
    open_file,
    open_parent,
    shown,
)
from session_worker.tools.file_text import is_binary, is_shown_whole
from session_worker.tools.file_write import check_replaceable
from session_worker.tools.seen import SeenFiles, fingerprint
from session_worker.tools.spec import ToolContext
from sidecar.protocol import bounds

MARK = "\ufeff"
"""The byte order mark, of clients that leave it in the text."""


@dataclass(frozen=True)
class ClientFile:
    """`raw` is what the disk has, None if there is no file; `text` what the client has, None if it
    does not tell."""

    editor: Editor
    path: Path
    found: os.stat_result | None
    raw: bytes | None
    text: str | None

    @cached_property
    def content(self) -> bytes | None:
        """As the client has it, else as the disk has it; None if there is no such file."""
        if self.text is None:
            return self.raw
        return _with_line_ends(self.text, self.raw or b"").encode()

    @cached_property
    def is_saved(self) -> bool:
        """Whether client and disk have the same, as far as that is known."""
        return self.text is None or _same(self.text, self.raw)

    def may_be_written(self, ctx: ToolContext) -> bool:
        """By the client; else by us. Refused where that would be behind the client's back."""
        if self.editor.writes:
            return True
        if not self.is_saved:
            label = shown(self.path, ctx)
            raise Refused(
                f"{label} was not changed: the client has unsaved changes in it and takes none of "
                "ours; they must be saved first"
            )
        return False

    def problem(self, seen: SeenFiles) -> str | None:
        """Why the model may not change it yet."""
        if self.text is not None:
            text = _plain(self.text)
            return seen.problem_of_text(self.path, self.found, text, on_disk=self.is_saved)
        return seen.problem(self.path, self.found) if self.found else None

    def note(self, seen: SeenFiles) -> None:
        """The model has seen the client's text."""
        assert self.text is not None
        seen.note_text(self.path, self.found, _plain(self.text), on_disk=self.is_saved)


async def opened(path: Path, ctx: ToolContext, *, to_write: bool = False) -> ClientFile | None:
    """None if this is for the disk alone. Raises Refused for what is no file."""
    editor = ctx.editor
    if editor is None or not (editor.reads or (to_write and editor.writes)):
        return None
    is_inside = any(path.is_relative_to(root) for root in ctx.roots)
    if not is_inside or path.is_relative_to(ctx.spill_dir):
        return None
    disk = await asyncio.to_thread(_on_disk, path, ctx)
    if disk is None:
        return None
    found, raw = disk
    text = await _text(editor, path, raw) if editor.reads else None
    return ClientFile(editor, path, found, raw, text)


async def _text(editor: Editor, path: Path, raw: bytes | None) -> str | None:
    try:
        text = await editor.read(path)
    except EditorFailed as failure:
        if raw is not None or not failure.is_certain:
            editor.tell_of(failure)
        return None
    # some clients answer with nothing for a file that is not there
    return text if text or raw is not None else None


def _on_disk(path: Path, ctx: ToolContext) -> tuple[os.stat_result | None, bytes | None] | None:
    """None if it is nothing for a client."""
    try:
        fd = open_file(path, ctx, os.O_RDONLY)
    except NotFound:
        return None, None
    try:
        found = os.fstat(fd)
        if found.st_size > bounds.CLIENT_FILE_BYTES:
            return None
        raw = os.pread(fd, found.st_size, 0)
    finally:
        os.close(fd)
    return (found, raw) if _is_utf8(raw) else None


def _is_utf8(raw: bytes) -> bool:
    if is_binary(raw) or is_shown_whole(raw):
        return False
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


async def save(file: ClientFile, text: str, ctx: ToolContext) -> None:
    """Have the client write `text`; the model has seen it from then on. Directories are made if
    there are none. Raises Refused, which says whether it was done."""
    label = shown(file.path, ctx)
    await asyncio.to_thread(_check, file, label, ctx)
    try:
        await file.editor.write(file.path, text)
    except EditorFailed as failure:
        doubt = "it may or may not be written: read it before you go on"
        outcome = "nothing was written" if failure.is_certain else doubt
        raise Refused(f"{label}: the client {failure}; {outcome}") from None
    await asyncio.to_thread(_note_written, file, text, ctx)


def _check(file: ClientFile, label: str, ctx: ToolContext) -> None:
    def problem(found: os.stat_result) -> str | None:
        is_same = fingerprint(found) == fingerprint(file.found)
        return None if is_same else "it has changed meanwhile; read it again"

    with open_parent(file.path, ctx, make=True) as parent, explained(label):
        check_replaceable(file.path, parent, ctx, problem)


def _note_written(file: ClientFile, text: str, ctx: ToolContext) -> None:
    """Perhaps the client has saved it already."""
    try:
        found, raw = _on_disk(file.path, ctx) or (None, None)
    except Refused:
        found, raw = None, None
    ClientFile(file.editor, file.path, found, raw, text).note(ctx.seen)


def _with_line_ends(text: str, raw: bytes) -> str:
    """`text` with CRLF if it has no line end but LF, and the disk none but CRLF."""
    is_crlf = b"\n" in raw and raw.count(b"\n") == raw.count(b"\r\n")
    return text.replace("\n", "\r\n") if is_crlf and "\r\n" not in text else text


def _same(text: str, raw: bytes | None) -> bool:
    """Whether an editor that has `text` would write `raw`; mark and line ends are its affair."""
    return raw is not None and _plain(text) == _plain(raw.decode())


def _plain(text: str) -> str:
    return text.removeprefix(MARK).replace("\r\n", "\n")
