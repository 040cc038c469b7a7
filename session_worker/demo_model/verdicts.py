"""Reads what unittest and pytest print: how a run ended, and where the tests failed.

Used by `repair`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

from session_worker.demo_model.conversation import Call
from session_worker.demo_model.wording import DECLINED

End = Literal["passed", "failed", "no_tests", "not_run"]

SAID_CHARS = 400

_COUNTS = re.compile(r"^Ran (\d+) tests? in|\b(\d+) (?:passed|failed|errors?)\b", re.MULTILINE)
_NO_TESTS = re.compile(
    r"^Ran 0 tests|NO TESTS RAN|no tests ran|Start directory is not importable"
    r"|No module named '?(?:pytest|unittest)\b",
    re.MULTILINE,
)
_TIMED_OUT = re.compile(r"\[ended: timed out")
_FRAMES = re.compile(r"^ *File \"(.+?)\", line (\d+)|^(\S+\.py):(\d+): ", re.MULTILINE)
_IMPORTED_FROM = re.compile(r"^\w*ImportError: .*\((.+?\.py)\)$", re.MULTILINE)
_FIRST_FAILURE = re.compile(r"^(?:(?:FAIL|ERROR): .+|(?:FAILED|ERROR) \S+::.+)$", re.MULTILINE)
_REASON = re.compile(r"^(?:E +)?((?:\w+\.)*\w*(?:Error|Exception)\b.*)$", re.MULTILINE)
_SUMMARY = re.compile(
    r"^(?:Ran \d+ tests? in .*|OK\b.*|FAILED \(.*|=* ?\d+ (?:passed|failed|error).*)$", re.MULTILINE
)


def end_of(run: Call) -> End:
    """How a run of tests ended. Whatever refused it, it counts as not run."""
    if DECLINED.match(run.result):
        return "not_run"  # whatever the reason speaks of
    if any(int(one or other) for one, other in _COUNTS.findall(run.result)):
        return "failed" if run.is_error else "passed"
    if _NO_TESTS.search(run.result):
        return "no_tests"
    return "failed" if _TIMED_OUT.search(run.result) else "not_run"


def frames(output: str, files: Collection[str]) -> list[tuple[str, int]]:
    """The lines of these files that the output names, in its order; 0 where it names no line."""
    named = [
        (match[1] or match[3], int(match[2] or match[4])) for match in _FRAMES.finditer(output)
    ]
    named += [(match[1], 0) for match in _IMPORTED_FROM.finditer(output)]
    found = [(file, line) for path, line in named if (file := _known(path, files))]
    return list(dict.fromkeys(found))


def _known(path: str, files: Collection[str]) -> str | None:
    """Tests name full paths, lists of files do not."""
    fitting = [file for file in files if path == file or path.endswith(f"/{file}")]
    return max(fitting, key=len, default=None)


def why(output: str) -> str:
    """The first failure, in the output's own words."""
    return _joined(_first(_FIRST_FAILURE, output), _first(_REASON, output)) or summary(output)


def summary(output: str) -> str:
    """The counts, in the output's own words."""
    return _joined(*(match[0].strip("= ") for match in _SUMMARY.finditer(output)))


def _first(pattern: re.Pattern[str], output: str) -> str:
    match = pattern.search(output)
    return match[match.lastindex or 0] if match else ""


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)[:SAID_CHARS]


def is_test(path: str) -> bool:
    """By the names that test runners look for."""
    *directories, name = path.split("/")
    is_named = name.startswith("test") or name.endswith("_test.py") or name == "conftest.py"
    return is_named or bool({"test", "tests"} & {*directories})
