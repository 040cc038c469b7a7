"""The `grep` tool: which lines, or files, hold what a regular expression describes.

Called by the dispatcher. ripgrep does it where there is one, else a child process of ours; both
print the same, and neither follows links or gets an environment.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, Field

from session_worker.tools import file_text, glob_pattern, search
from session_worker.tools.confine import Refused, locate, open_file, shown
from session_worker.tools.grep_page import Page
from session_worker.tools.search_job import (
    LINE_BYTES,
    PRUNED,
    SEARCH_FILE_BYTES,
    WALK_ENTRIES,
    Exit,
    GrepJob,
)
from session_worker.tools.spec import ToolContext, ToolResult, ToolSpec
from session_worker.tools.truncate import json_safe, size_text, title

GREP_LIMIT = 100
GREP_LIMIT_MAX = 1_000
"""Of matches on one page; 50 KB hold no more."""
GREP_CONTEXT_MAX = 10
"""Lines around a match: whoever needs more reads the file."""

DESCRIPTION = """\
Search files for a regular expression, line by line: `path:line:text`, in the order of paths. \
Files that .gitignore names, .git, node_modules and .venv are left out (a path that names them \
is searched), and so are binary files, symbolic links and files over 64 MB. No matches is an \
answer, not an error."""


class GrepParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    pattern: str = Field(description="regular expression; escape ( [ { . to mean them")
    path: str = Field(default=".", description="file or directory to search")
    glob: str | None = Field(
        default=None, description="only files like *.py, src/**/*.{ts,tsx}, or !*.min.js"
    )
    mode: Literal["content", "files", "count"] = Field(
        default="content", description="lines, names of files, or matches per file"
    )
    context: int = Field(
        default=0, ge=0, le=GREP_CONTEXT_MAX, description="lines shown around each match, 0-10"
    )
    ignore_case: bool = False
    multiline: bool = Field(
        default=False, description="matches may span lines; with (?s) the dot does too"
    )
    limit: int = Field(
        default=GREP_LIMIT, ge=1, le=GREP_LIMIT_MAX, description="matches, or files, on one page"
    )
    offset: int = Field(default=0, ge=0, description="matches, or files, to pass over")
    include_ignored: bool = Field(default=False, description="also what .gitignore names")


async def _run(params: GrepParams, ctx: ToolContext) -> ToolResult:
    try:
        target = locate(params.path, ctx)
        base, file = (target, None) if _is_directory(target) else _searchable(target, ctx)
        inner = ctx if file else search.start_directory(base, ctx)
        wanted = glob_pattern.file_filter(None if file else params.glob)
    except (Refused, glob_pattern.BadPattern) as problem:
        return ToolResult(str(problem), is_error=True)

    def name(path: bytes) -> str | None:
        """A file as it is shown; None for one that is not wanted or has become a link out."""
        text = os.fsdecode(path.removeprefix(b"./"))
        is_shown = wanted(text) and search.may_be_shown(base / text, inner)
        return shown(base / text, ctx) if is_shown else None

    def read(stream: BinaryIO) -> bool:
        if params.mode == "content":
            return page.fill(stream, name)
        return page.fill_counts(stream, name, counts=params.mode == "count")

    loop = asyncio.get_running_loop()
    deadline = loop.time() + search.SEARCH_S
    page, code, late = Page(params.limit, params.offset), None, False
    for argv in _back_ends(params, base, file, ctx):
        page = Page(params.limit, params.offset, params.context)
        try:
            code = await search.run(argv, base, ctx, read, deadline - loop.time())
        except TimeoutError:
            late = True
            break
        except (OSError, ValueError) as error:  # too long, or not text
            return ToolResult(json_safe(f"the search could not be started: {error}"), is_error=True)
        if code != Exit.BAD_PATTERN or page.seen or not page.junk:
            break  # else ripgrep is too old, or cannot look around as Python can
    if problem := _failure(code, page):
        return ToolResult(json_safe(problem), is_error=True)
    return ToolResult(
        "\n".join([*page.rows, f"[{'; '.join(_notes(params, page, code, late))}]"]),
        is_error=late and not page.shown,
        meta={"matches": page.shown, "more": page.more or late},
    )


def _is_directory(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 -- unlike Path.is_dir it never raises


def _searchable(path: Path, ctx: ToolContext) -> tuple[Path, str]:
    """A file that was named is looked at first: nothing would be said of one passed over."""
    fd = open_file(path, ctx, os.O_RDONLY)
    try:
        if (size := os.fstat(fd).st_size) > SEARCH_FILE_BYTES:
            raise Refused(f"{shown(path, ctx)} is too large ({size_text(size)}); use grep in bash")
        if file_text.is_binary(os.read(fd, file_text.BINARY_HEAD_BYTES)):
            raise Refused(f"{shown(path, ctx)} is binary; use grep -a in bash")
    finally:
        os.close(fd)
    return path.parent, path.name


def _back_ends(
    params: GrepParams, base: Path, file: str | None, ctx: ToolContext
) -> Iterator[list[str]]:
    """Command lines, the better one first."""
    if rg := ripgrep(ctx):
        yield [rg, *_ripgrep_arguments(params, file)]
    asked = params.model_dump(exclude={"path", "limit", "offset"})
    yield search.python_child(GrepJob(base=str(base), file=file, **asked))


def ripgrep(ctx: ToolContext) -> str | None:
    """The one that commands would find, but none from the session's own directories: a search
    needs no permission, and must not run what a session has put there."""
    found = shutil.which("rg", path=ctx.env.get("PATH", ""))
    if found is None or not os.path.isabs(found) or search.leads_inside(Path(found), ctx):  # noqa: PTH117
        return None
    return os.path.realpath(found)


def _ripgrep_arguments(params: GrepParams, file: str | None) -> list[str]:
    """What makes ripgrep 13 and later search as our own child does: only .gitignore counts, and
    no configuration. `--glob` would let in what is ignored, so a type has to spare it files."""
    arguments = [
        "--no-config", "--no-follow", "--no-messages", "--no-ignore-messages", "--no-heading",
        "--color=never", "--null", "--with-filename", "--sort=path", "--hidden", "--crlf",
        "--no-require-git", "--no-ignore-dot", "--no-ignore-exclude", "--no-ignore-global",
        f"--max-filesize={SEARCH_FILE_BYTES}", *(f"--glob=!**/{name}" for name in sorted(PRUNED)),
    ]  # fmt: skip
    match params.mode:
        case "content":
            arguments += ["--line-number", f"--context={params.context}", "--no-context-separator"]
            arguments += [f"--max-columns={LINE_BYTES}", "--max-columns-preview"]
        case "files":
            arguments += ["--count", "--max-count=1"]
        case "count":
            arguments += ["--count"]
    if file is None and params.glob and params.glob[0] != "!" and "/" not in params.glob:
        arguments += [f"--type-add=wanted:{params.glob}", "--type=wanted"]
    arguments += ["--ignore-case"] * params.ignore_case + ["--multiline"] * params.multiline
    arguments += ["--no-ignore"] * params.include_ignored + ["--text"] * (file is not None)
    return [*arguments, f"--regexp={params.pattern}", "--", f"./{file or ''}"]


def _failure(code: int | None, page: Page) -> str | None:
    if code == Exit.BAD_PATTERN and page.junk and not page.seen:
        return f"the pattern is not a regular expression: {page.junk}"
    if code is not None and code < 0:
        return f"the search was ended by signal {-code}; simplify the pattern or narrow the path"
    if code not in (None, 1, *Exit) or (code == 1 and page.junk):
        return f"the search failed (exit {code}): {page.junk}"
    return None


def _notes(params: GrepParams, page: Page, code: int | None, late: bool) -> list[str]:
    things = "matching lines" if params.mode == "content" else "files"
    last = params.offset + page.shown
    if page.more:
        notes = [
            f"{things} {params.offset + 1}-{last}; there are more, continue with offset={last}"
        ]
    elif page.shown and params.offset:
        notes = [f"{things} {params.offset + 1}-{last} of {last}"]
    elif page.shown:
        notes = [f"{things}: {page.shown}"]
    else:
        notes = [f"no more; {things}: {page.seen}" if page.seen else "no matches"]
    if not (page.seen or params.multiline) and re.search(r"\n|\\n", params.pattern):
        notes.append("a pattern over several lines needs multiline")
    if late:
        notes.append(f"stopped after {search.SEARCH_S:.0f}s: narrow the path or the glob")
    if code == Exit.CAPPED:
        notes.append(f"stopped after {WALK_ENTRIES} files and directories: narrow the path")
    return notes


def _title(params: GrepParams) -> str:
    where = "" if params.path == "." else f" in {params.path}"
    files = f" ({params.glob})" if params.glob else ""
    return title(f"search for {params.pattern}{where}{files}")


GREP = ToolSpec(
    name="grep",
    description=DESCRIPTION,
    params=GrepParams,
    handler=_run,
    kind="search",
    read_only=True,
    render=_title,
    family="read",
    paths=lambda params: [params.path],
    timeout_s=search.SEARCH_TIMEOUT_S,
)
