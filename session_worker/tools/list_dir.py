"""The `list_dir` tool: what is in a directory, and in those below it, in the order of names.

Called by the dispatcher. Never follows a link, and never opens anything but directories.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from session_worker.tools import search
from session_worker.tools.confine import Refused, locate, open_file, shown
from session_worker.tools.search_job import PRUNED
from session_worker.tools.spec import ToolContext, ToolResult, ToolSpec
from session_worker.tools.truncate import size_text, title

LIST_ENTRIES = 500
"""Of one answer, those of the upper levels first."""
LIST_DEPTH_MAX = 3
LIST_TIMEOUT_S = 30.0
"""For a slow disk or a network; a hung one must not hold the run."""

DESCRIPTION = f"""\
List a directory: one path a line, relative to it, with / behind directories, sizes, and where \
links lead. Depth 2 and 3 list what is below as well, except in .git, node_modules and .venv. At \
most {LIST_ENTRIES} entries."""

_KINDS = {
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


class ListParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: str = Field(default=".", description="relative to the session's directory, or absolute")
    depth: int = Field(default=1, ge=1, le=LIST_DEPTH_MAX, description="levels, 1-3")


@dataclass
class Listing:
    """`lines` by the parts of their paths; `total` is all that the directories looked into hold."""

    lines: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])
    total: int = 0
    unvisited: int = 0


async def _run(params: ListParams, ctx: ToolContext) -> ToolResult:
    stop = threading.Event()
    try:
        listing = await asyncio.to_thread(_listing, params, ctx, stop.is_set)
    except Refused as refusal:
        return ToolResult(str(refusal), is_error=True)
    finally:
        stop.set()  # a thread cannot be cancelled
    count = len(listing.lines)
    note = f"entries: {count}" + (f" of {listing.total}" if count < listing.total else "")
    if listing.unvisited:
        note += f"; directories not looked into: {listing.unvisited}"
    lines = [listing.lines[parts] for parts in sorted(listing.lines)]
    return ToolResult(
        "\n".join([*lines, f"[{note}]"]),
        meta={"entries": count, "total": listing.total},
    )


def _listing(params: ListParams, ctx: ToolContext, stopped: Callable[[], bool]) -> Listing:
    """Level by level, so that a full list lacks what is deepest. Raises Refused for the first."""
    top = locate(params.path, ctx)
    inner = search.start_directory(top, ctx)
    listing = Listing()
    level: list[tuple[str, ...]] = [()]
    for _ in range(params.depth):
        below: list[tuple[str, ...]] = []
        for parts in level:
            if stopped() or len(listing.lines) == LIST_ENTRIES:
                listing.unvisited += 1
                continue
            try:
                below += _add(listing, top, parts, inner, stopped)
            except (Refused, OSError) as problem:
                if not parts:
                    raise Refused(str(problem)) from None
                listing.lines[parts] += f"  (cannot be read: {problem})"
        level = below
    return listing


def _add(
    listing: Listing,
    top: Path,
    parts: tuple[str, ...],
    ctx: ToolContext,
    stopped: Callable[[], bool],
) -> list[tuple[str, ...]]:
    """Add what one directory holds; which of it to look into."""
    fd = open_file(top.joinpath(*parts), ctx, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(fd) as found:

            def counted() -> Iterator[os.DirEntry[str]]:
                for entry in found:
                    if stopped():
                        return
                    listing.total += 1
                    yield entry

            room = LIST_ENTRIES - len(listing.lines)
            first = heapq.nsmallest(room, counted(), key=lambda entry: entry.name)
        for entry in first:
            path = (*parts, entry.name)
            listing.lines[path] = shown("/".join(path)) + _about(
                entry, fd, top.joinpath(*path), ctx
            )
        return [
            (*parts, entry.name)
            for entry in first
            if entry.is_dir(follow_symlinks=False) and entry.name not in PRUNED
        ]
    finally:
        os.close(fd)


def _about(entry: os.DirEntry[str], directory: int, path: Path, ctx: ToolContext) -> str:
    """What is said of an entry behind its name."""
    try:
        found = entry.stat(follow_symlinks=False)
        kind = stat.S_IFMT(found.st_mode)
        if kind == stat.S_IFDIR:
            return "/"
        if kind == stat.S_IFREG:
            return f"  {size_text(found.st_size)}"
        if kind != stat.S_IFLNK:
            return f"  ({_KINDS[kind]})"
        target = shown(os.readlink(entry.name, dir_fd=directory))
        outside = "" if search.leads_inside(path, ctx) else "  (outside the session's directories)"
        return f" -> {target}{outside}"
    except OSError:  # gone meanwhile
        return ""


def _title(params: ListParams) -> str:
    return title(f"list {params.path}")


LIST_DIR = ToolSpec(
    name="list_dir",
    description=DESCRIPTION,
    params=ListParams,
    handler=_run,
    kind="read",
    read_only=True,
    render=_title,
    family="read",
    paths=lambda params: [params.path],
    timeout_s=LIST_TIMEOUT_S,
)
