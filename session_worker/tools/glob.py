"""The `glob` tool: which files have names that fit a pattern, the newest first.

Called by the dispatcher. The walk is a child process's (see `walk`); here it is said where it may
start, and every result is looked at again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel, ConfigDict, Field

from session_worker.tools import glob_pattern, search
from session_worker.tools.confine import Refused, locate, shown
from session_worker.tools.search_job import WALK_ENTRIES, FindJob
from session_worker.tools.spec import ToolContext, ToolResult, ToolSpec
from session_worker.tools.truncate import json_safe, title

GLOB_PATHS = 200
"""Of one answer: whoever gets so many needs a better pattern, not a longer list."""

DESCRIPTION = f"""\
List files by a pattern: *, ?, [ab], {{a,b}}, and ** for any number of directories, so **/*.py \
for all depths and *.py for one directory. The {GLOB_PATHS} newest, newest first. A / at the end \
lists directories instead. Files that .gitignore names, .git, node_modules and .venv are left out \
unless the pattern starts with them."""


class GlobParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    pattern: str = Field(min_length=1, description="relative to path; src/**/*.{ts,tsx}")
    path: str = Field(default=".", description="directory to start in")
    include_ignored: bool = Field(default=False, description="also what .gitignore names")


async def _run(params: GlobParams, ctx: ToolContext) -> ToolResult:
    start, rest = _start(params)
    try:
        base = locate(start, ctx)
        inner = search.start_directory(base, ctx)
        glob_pattern.parse(rest)
    except (Refused, glob_pattern.BadPattern) as problem:
        return ToolResult(str(problem), is_error=True)
    directories = params.pattern.endswith("/")
    job = FindJob(str(base), rest, directories, params.include_ignored, GLOB_PATHS)
    answer = b""

    def read(stream: BinaryIO) -> bool:
        nonlocal answer
        answer = stream.read()
        return True

    try:
        argv = search.python_child(job)
        code = await search.run(argv, base, ctx, read, search.SEARCH_S)
    except TimeoutError:
        late = (
            f"stopped after {search.SEARCH_S:.0f}s: start further down, or with a narrower pattern"
        )
        return ToolResult(late, is_error=True)
    except OSError as error:
        return ToolResult(json_safe(f"the search could not be started: {error}"), is_error=True)
    if code != 0:
        why = answer.decode(errors="replace").strip() or "no reason given"
        return ToolResult(json_safe(f"the search failed (exit {code}): {why}"), is_error=True)
    return _result(params, json.loads(answer), base, inner)


def _start(params: GlobParams) -> tuple[str, str]:
    """Where a walk starts: the directories that a pattern names outright count as its path."""
    literal, rest = glob_pattern.split_literal(params.pattern.rstrip("/"))
    return str(Path(params.path, literal)), rest


def _result(params: GlobParams, answer: dict[str, Any], base: Path, ctx: ToolContext) -> ToolResult:
    paths = [base / path for path in answer["paths"]]
    inside = [path for path in paths if search.may_be_shown(path, ctx)]
    mark = "/" if params.pattern.endswith("/") else ""
    things = "directories" if mark else "files"
    total: int = answer["total"]
    if total > len(paths):
        notes = [f"the newest {len(paths)} of {total} {things}"]
    else:
        notes = [f"{things}: {len(inside)}" if total else f"no {things} match"]
    if len(inside) < len(paths):
        notes.append(f"left out, for a rule or a link out: {len(paths) - len(inside)}")
    if not total and "/" not in params.pattern:
        notes.append(f"**/{params.pattern} looks in all directories below")
    if answer["capped"]:
        notes.append(f"stopped after {WALK_ENTRIES} files and directories: narrow the path")
    if answer["unreadable"]:
        notes.append(f"directories that cannot be read: {answer['unreadable']}")
    return ToolResult(
        "\n".join([*(shown(path, ctx) + mark for path in inside), f"[{'; '.join(notes)}]"]),
        meta={"total": total, "more": total > len(paths) or answer["capped"]},
    )


def _title(params: GlobParams) -> str:
    where = "" if params.path == "." else f" in {params.path}"
    return title(f"find {params.pattern}{where}")


GLOB = ToolSpec(
    name="glob",
    description=DESCRIPTION,
    params=GlobParams,
    handler=_run,
    kind="search",
    read_only=True,
    render=_title,
    family="read",
    paths=lambda params: [_start(params)[0]],
    timeout_s=search.SEARCH_TIMEOUT_S,
)
