"""The program that walks and searches where there is no ripgrep: `find` and `grep` jobs.

Started by `search` for the tools `glob` and `grep`. A process of its own, because only the kernel
can stop a regular expression that backtracks. Never opens a pipe or a device, and never writes a
line longer than ripgrep would.

`find` prints one JSON document. `grep` prints what ripgrep prints: path, NUL, line number, `:` or
`-` for context, text; in the other modes path, NUL, count.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import json
import os
import re
import resource
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from session_worker.tools import file_text, glob_pattern
from session_worker.tools.search_job import LINE_BYTES, SEARCH_FILE_BYTES, Exit, FindJob, GrepJob
from session_worker.tools.truncate import json_safe
from session_worker.tools.walk import Walk, is_directory

SEARCH_CPU_S = 30
"""Of this process: above every wait of ours, for the case that nobody is left to end it."""


def main() -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    limit = SEARCH_CPU_S if hard == resource.RLIM_INFINITY else min(hard, SEARCH_CPU_S)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
    job = json.loads(sys.argv[2])
    return _find(FindJob(**job)) if sys.argv[1] == "find" else _grep(GrepJob(**job))


def _find(job: FindJob) -> int:
    glob = glob_pattern.parse(job.pattern)
    walk = Walk(job.base, job.include_ignored, glob.may_hold)
    found = [
        (_mtime(entry), path)
        for path, entry in walk
        if glob.matches(path) and _is_wanted(entry, job.directories)
    ]
    newest = [path for _, path in heapq.nlargest(job.limit, found)]
    answer = {"paths": newest, "total": len(found), "unreadable": walk.unreadable}
    print(json.dumps(answer | {"capped": walk.capped}))  # noqa: T201 -- ASCII, whatever the names
    return Exit.DONE


def _mtime(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_mtime_ns
    except OSError:  # gone meanwhile
        return 0


def _is_wanted(entry: os.DirEntry[str], directories: bool) -> bool:
    try:
        return is_directory(entry) if directories else entry.is_file()
    except OSError:  # a loop of links
        return False


def _grep(job: GrepJob) -> int:
    flags = re.IGNORECASE * job.ignore_case | re.MULTILINE * job.multiline
    try:
        regex = re.compile(job.pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        print(error)  # noqa: T201
        return Exit.BAD_PATTERN
    walk = Walk(job.base, job.include_ignored, lambda _: True)
    wanted = glob_pattern.file_filter(job.glob)
    below = (path for path, entry in walk if wanted(path) and entry.is_file(follow_symlinks=False))
    for path in [job.file] if job.file else below:
        text = _text(Path(job.base, path))
        if text is not None:
            for line in _answer(regex, text, job):
                sys.stdout.buffer.write(os.fsencode(path) + b"\0" + line + b"\n")
            sys.stdout.buffer.flush()
    return Exit.CAPPED if walk.capped else Exit.DONE


def _text(path: Path) -> str | None:
    """What is in a text file, with LF at the ends of its lines; None for all others."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_size > SEARCH_FILE_BYTES:
                return None
            raw = file.read(SEARCH_FILE_BYTES)
        if file_text.is_binary(raw):
            return None
        return file_text.decode(raw).text.replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError):
        return None


def _answer(regex: re.Pattern[str], text: str, job: GrepJob) -> Iterator[bytes]:
    """What goes behind the path: one line per line shown, or one with a count."""
    lines = text.removesuffix("\n").split("\n") if text else []
    spans = _spans(regex, text, lines) if job.multiline else _each(regex, lines)
    if job.mode == "content":
        yield from _shown(lines, itertools.chain.from_iterable(spans), job.context)
    elif count := sum(1 for _ in itertools.islice(spans, 1 if job.mode == "files" else None)):
        yield str(count).encode()


def _each(regex: re.Pattern[str], lines: list[str]) -> Iterator[range]:
    return (range(n, n + 1) for n, line in enumerate(lines) if regex.search(line))


def _spans(regex: re.Pattern[str], text: str, lines: list[str]) -> Iterator[range]:
    """The lines of each match; an empty one at the very end of the text has none."""
    starts = list(itertools.accumulate((len(line) + 1 for line in lines), initial=0))
    for found in regex.finditer(text):
        if found.start() < starts[-1]:
            first = bisect.bisect_right(starts, found.start()) - 1
            last = bisect.bisect_right(starts, max(found.start(), found.end() - 1)) - 1
            yield range(first, min(last + 1, len(lines)))


def _shown(lines: list[str], matching: Iterator[int], context: int) -> Iterator[bytes]:
    """The matching lines, each once, and `context` lines around them."""
    done = reach = 0  # lines that are dealt with; where the context of the last match ends
    for match in matching:
        if match < done:
            continue
        before = range(max(done, reach, match - context), match)
        for n in itertools.chain(range(done, min(reach, match)), before):
            yield _line(n, b"-", lines)
        yield _line(match, b":", lines)
        done, reach = match + 1, match + 1 + context
    for n in range(done, min(reach, len(lines))):
        yield _line(n, b"-", lines)


def _line(n: int, sign: bytes, lines: list[str]) -> bytes:
    return str(n + 1).encode() + sign + json_safe(lines[n][:LINE_BYTES]).encode()[:LINE_BYTES]


if __name__ == "__main__":
    sys.exit(main())
