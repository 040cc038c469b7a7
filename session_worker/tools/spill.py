"""Files that hold what is too long for the model, private to the session."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

from session_worker.tools.spec import ToolContext

FILE_STEM_CHARS = 64
"""Of a call id in a file's name."""


def create_file(ctx: ToolContext, suffix: str) -> tuple[int, Path]:
    """A new file named for the call, to append to: `echo x > /dev/stderr` empties the output
    file, and the other writers must go on at its new end."""
    ctx.spill_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", ctx.call_id)[:FILE_STEM_CHARS] or "call"
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    number = itertools.count(1)
    path = ctx.spill_dir / f"{stem}{suffix}"
    while True:
        try:
            return os.open(path, flags, 0o600), path
        except FileExistsError:
            path = path.with_name(f"{stem}-{next(number)}{suffix}")
