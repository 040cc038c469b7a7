"""The grep tool: both back ends answer the same, in pages, and no pattern or file hurts anybody."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from session_worker.tools import grep, search, search_job
from session_worker.tools.glob import GLOB
from session_worker.tools.grep import GREP
from session_worker.tools.grep_page import GREP_LINE_CHARS
from session_worker.tools.search_child import SEARCH_CPU_S
from tests.support.processes import eventually
from tests.support.tool_bench import ToolBench

RG = shutil.which("rg")
BACK_ENDS = [
    pytest.param({}, id="python"),
    pytest.param(
        {"PATH": os.environ["PATH"]},
        id="ripgrep",
        marks=pytest.mark.skipif(RG is None, reason="there is no rg"),
    ),
]

TREE = {
    ".git/config": "TODO\n",
    ".github/ci.yml": "TODO\n",
    ".gitignore": "*.log\nbuild/\n!keep.log\n/top.txt\n[\n",
    ".venv/lib.py": "TODO\n",
    "-dash.txt": "a TODO\n",
    "a.py": "def one():\n    return TODO\n\ndef two():\n    return 2  # TODO TODO\n",
    "bin.dat": b"TODO\n\0",
    "build/made.txt": "TODO\n",
    "build/made.log": "TODO\n",
    "crlf.txt": "one TODO\r\ntwo\r\n",
    "keep.log": "TODO\n",
    "latin.txt": b"\xe9 TODO\n",
    "long.js": "TODO" + "é" * 3_000 + "\n",
    "new\nline\x1b.txt": "TODO\n",
    "node_modules/m/i.js": "TODO\n",
    "only/.gitignore": "*\n!*/\n!*.py\n",
    "only/sub/w.py": "TODO\n",
    "only/sub/w.txt": "TODO\n",
    "src/.gitignore": "gen_*\n!gen_keep.py\n",
    "src/deep/c.ts": "todo\nÄTODO",
    "src/gen_keep.py": "TODO\n",
    "src/gen_x.py": "TODO\n",
    "src/top.txt": "TODO\n",
    "top.txt": "TODO\n",
    "utf16.txt": "TODO ü\r\n".encode("utf-16"),
    "vendor/.git/HEAD": "TODO\n",
    "vendor/x.log": "TODO\n",
    "z.log": "TODO\n",
}
ALL = [
    "-dash.txt",
    ".github/ci.yml",
    "a.py",
    "crlf.txt",
    "keep.log",
    "latin.txt",
    "long.js",
    "new\\nline\\x1b.txt",
    "only/sub/w.py",
    "src/deep/c.ts",
    "src/gen_keep.py",
    "src/top.txt",
    "utf16.txt",
    "vendor/x.log",
]
FILES = {"pattern": "TODO", "mode": "files"}

CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "only .gitignore and the pruned directories hide files": (FILES, [*ALL, "[files: 14]"]),
    "what is ignored comes on demand, what is pruned does not": (
        FILES | {"include_ignored": True, "glob": "*.{log,txt}", "offset": 7},
        [
            "only/sub/w.txt",
            "src/top.txt",
            "top.txt",
            "utf16.txt",
            "vendor/x.log",
            "z.log",
            "[files 8-13 of 13]",
        ],
    ),
    "a glob does not let in what is ignored": (
        FILES | {"glob": "*.log"},
        ["keep.log", "vendor/x.log", "[files: 2]"],
    ),
    "a glob with a slash starts at the path": (
        FILES | {"glob": "src/**/*.{ts,py}"},
        ["src/deep/c.ts", "src/gen_keep.py", "[files: 2]"],
    ),
    "a glob can exclude": (
        FILES | {"glob": "!*.txt", "path": "src"},
        ["src/deep/c.ts", "src/gen_keep.py", "[files: 2]"],
    ),
    "the rules above a path hold below it": (
        FILES | {"path": "only/sub"},
        ["only/sub/w.py", "[files: 1]"],
    ),
    "a path that is ignored can be searched, its other rules hold": (
        FILES | {"path": "build"},
        ["build/made.txt", "[files: 1]"],
    ),
    "a path that is pruned can be searched": (
        {"pattern": "TODO", "path": "node_modules/m"},
        ["node_modules/m/i.js:1:TODO", "[matching lines: 1]"],
    ),
    "a file that is named is searched whatever it is called": (
        {"pattern": "TODO", "path": "z.log", "glob": "*.py"},
        ["z.log:1:TODO", "[matching lines: 1]"],
    ),
    "lines come with numbers and context": (
        {"pattern": "TODO$", "glob": "*.{py,txt}", "path": ".", "context": 1, "limit": 3},
        [
            "-dash.txt:1:a TODO",
            "--",
            "a.py-1-def one():",
            "a.py:2:    return TODO",
            "a.py-3-",
            "a.py-4-def two():",
            "a.py:5:    return 2  # TODO TODO",
            "[matching lines 1-3; there are more, continue with offset=3]",
        ],
    ),
    "the next page repeats no match but shows it as context": (
        {"pattern": "TODO", "path": "a.py", "context": 3, "offset": 1},
        [
            "a.py-2-    return TODO",
            "a.py-3-",
            "a.py-4-def two():",
            "a.py:5:    return 2  # TODO TODO",
            "[matching lines 2-2 of 2]",
        ],
    ),
    "there is a page behind the last": (
        {"pattern": "TODO", "path": "a.py", "offset": 2},
        ["[no more; matching lines: 2]"],
    ),
    "lines are counted, not matches": (
        {"pattern": "TODO", "mode": "count", "glob": "a.py"},
        ["a.py:2", "[files: 1]"],
    ),
    "matches over lines are counted as one": (
        {"pattern": r"(?s)one.*two", "mode": "count", "multiline": True, "path": "a.py"},
        ["a.py:1", "[files: 1]"],
    ),
    "there is no line behind the last": (
        {"pattern": "$", "mode": "count", "multiline": True, "path": "a.py"},
        ["a.py:5", "[files: 1]"],
    ),
    "a match over lines shows them all": (
        {"pattern": r"\n\ndef", "multiline": True, "path": "a.py", "context": 1},
        [
            "a.py-1-def one():",
            "a.py:2:    return TODO",
            "a.py:3:",
            "a.py:4:def two():",
            "a.py-5-    return 2  # TODO TODO",
            "[matching lines: 3]",
        ],
    ),
    "a line end never matches without multiline": (
        {"pattern": r"\n\ndef", "path": "a.py"},
        ["[no matches; a pattern over several lines needs multiline]"],
    ),
    "case is ignored on demand, beyond ASCII too": (
        {"pattern": "ätodo$", "ignore_case": True},
        ["src/deep/c.ts:2:ÄTODO", "[matching lines: 1]"],
    ),
    "a line may end with CR LF": (
        {"pattern": "TODO$", "path": "crlf.txt"},
        ["crlf.txt:1:one TODO", "[matching lines: 1]"],
    ),
    "what ripgrep's engine lacks works all the same": (
        {"pattern": r"(?<=one )TODO$"},
        ["crlf.txt:1:one TODO", "[matching lines: 1]"],
    ),
    "bytes that are no text are shown as such": (
        {"pattern": "TODO", "glob": "latin.txt"},
        ["latin.txt:1:\ufffd TODO", "[matching lines: 1]"],
    ),
    "a long line is cut": (
        {"pattern": "TODOé", "glob": "*.js"},
        [f"long.js:1:{('TODO' + 'é' * 3_000)[:GREP_LINE_CHARS]}…", "[matching lines: 1]"],
    ),
    "a pattern may look like an option": (
        {"pattern": "--pre=sh"},
        ["[no matches]"],
    ),
}


@pytest.fixture
def bench(tmp_path: Path) -> ToolBench:
    bench = ToolBench(tmp_path)
    for name, content in TREE.items():
        bench.file(name, content)
    secret = bench.outside / "secret.txt"
    secret.write_text("TODO\n")
    (bench.root / "linked.txt").symlink_to(secret)
    (bench.root / "linked").symlink_to(bench.outside)
    (bench.root / "loop").symlink_to(bench.root)
    os.mkfifo(bench.root / "pipe")
    return bench


def ripgrep_stub(bench: ToolBench, script: str) -> None:
    """A program called rg, outside the session's directory, and the only one in PATH."""
    path = bench.outside / "rg"
    path.write_text(f"#!/bin/sh\nPATH=/bin:/usr/bin\n{script}\n")
    path.chmod(0o755)
    bench.also(env={"PATH": str(bench.outside)})


def searches() -> list[psutil.Process]:
    """Of this process, which may have a daemon of other tests as a child, too."""
    return [c for c in psutil.Process().children() if "search_child" in " ".join(c.cmdline())]


async def started_child() -> psutil.Process:
    while not (children := searches()):  # noqa: ASYNC110 -- nobody tells
        await asyncio.sleep(0)
    return children[0]


@pytest.mark.parametrize("env", BACK_ENDS)
async def test_both_back_ends_answer_the_same(bench: ToolBench, env: dict[str, str]) -> None:
    bench.also(env=env)
    results = await asyncio.gather(*(bench.call(GREP, **given) for given, _ in CASES.values()))
    assert not any(result.is_error for result in results)
    answers = (str(result.content).split("\n") for result in results)
    assert dict(zip(CASES, answers, strict=True)) == {name: case[1] for name, case in CASES.items()}


@pytest.mark.parametrize("env", BACK_ENDS)
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"pattern": "(x"}, "not a regular expression: missing )"),
        ({"pattern": "x", "glob": "../*"}, "'..'"),
        ({"pattern": "x", "path": "pipe"}, "a named pipe"),
        ({"pattern": "x", "path": "bin.dat"}, "is binary"),
        ({"pattern": "x", "path": "nowhere"}, "there is no"),
        ({"pattern": "x", "path": "linked"}, "outside the session's directories"),
        ({"pattern": "x" * 200_000}, "could not be started"),
    ],
)
async def test_what_cannot_be_searched_is_told(
    bench: ToolBench, env: dict[str, str], given: dict[str, Any], problem: str
) -> None:
    bench.also(env=env)
    result = await bench.call(GREP, **given)
    assert result.is_error and problem in str(result.content)


@pytest.mark.parametrize("env", BACK_ENDS)
async def test_a_directory_that_was_granted_is_searched_with_its_rules(
    bench: ToolBench, env: dict[str, str]
) -> None:
    for name in ("a.log", "in/a.log"):
        (bench.outside / name).parent.mkdir(exist_ok=True)
        (bench.outside / name).write_text("TODO\n")
    (bench.outside / ".gitignore").write_text("*.log\n")
    bench.also(env=env, granted=frozenset({bench.outside}))
    result = await bench.call(GREP, pattern="TODO", path=str(bench.outside))
    assert result.content == f"{bench.outside}/secret.txt:1:TODO\n[matching lines: 1]"


@pytest.mark.parametrize("env", BACK_ENDS)
async def test_a_file_that_is_named_is_searched_to_its_end(
    bench: ToolBench, env: dict[str, str]
) -> None:
    bench.file("late.dat", "TODO\n" + "x" * 20_000 + "\n\0\nTODO\n")
    bench.also(env=env)
    result = await bench.call(GREP, pattern="TODO", path="late.dat")
    assert result.content == "late.dat:1:TODO\nlate.dat:4:TODO\n[matching lines: 2]"


async def test_a_file_that_became_a_link_out_is_not_shown(bench: ToolBench) -> None:
    ripgrep_stub(bench, 'printf "./linked.txt\\0001:TODO\\n./a.py\\0002:TODO\\n"')
    result = await bench.call(GREP, pattern="TODO")
    assert result.content == "a.py:2:TODO\n[matching lines: 1]"


@pytest.mark.parametrize("link", [False, True])
async def test_no_ripgrep_of_the_sessions_own_is_run(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch, link: bool
) -> None:
    directory = bench.outside if link else bench.root
    bench.file("rg", "#!/bin/sh\n").chmod(0o755)
    if link:
        (directory / "rg").symlink_to(bench.root / "rg")
    assert grep.ripgrep(bench.also(env={"PATH": str(directory)})) is None
    (bench.outside / "rg").unlink(missing_ok=True)
    (bench.outside / "rg").write_text("#!/bin/sh\n")
    (bench.outside / "rg").chmod(0o755)
    monkeypatch.chdir(bench.outside)
    assert grep.ripgrep(bench.also(env={"PATH": "."})) is None


async def test_a_search_inherits_no_environment(bench: ToolBench) -> None:
    ripgrep_stub(bench, 'printf "./a.py\\0001:"; env | tr "\\n" " "; echo')
    bench.also(env=bench.ctx.env | {"KEY": "secret", "SIDECAR_SESSION": "s1"})
    result = await bench.call(GREP, pattern="x")
    assert "SIDECAR_SESSION=s1" in str(result.content) and "secret" not in str(result.content)


async def test_a_ripgrep_that_does_not_know_our_options_is_passed_over(bench: ToolBench) -> None:
    ripgrep_stub(bench, "echo 'error: unexpected argument' >&2; exit 2")
    result = await bench.call(GREP, pattern="return TODO")
    assert result.content == "a.py:2:    return TODO\n[matching lines: 1]"


async def test_what_takes_too_long_is_ended_with_what_there_is(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SEARCH_S", 0.2)
    bench.file("src/slow.txt", "a" * 50 + "b\n")
    result = await bench.call(GREP, pattern="(a+)+$", path="src")
    assert "stopped after" in str(result.content) and result.is_error
    assert searches() == []


async def test_a_cancelled_search_leaves_no_process(bench: ToolBench) -> None:
    bench.file("src/slow.txt", "a" * 50 + "b\n")
    async with asyncio.TaskGroup() as group:
        call = group.create_task(bench.call(GREP, pattern="(a+)+$", path="src"))
        child = await started_child()
        call.cancel()
    assert not child.is_running()


async def test_files_that_a_rule_hides_are_left_out_of_searches(bench: ToolBench) -> None:
    bench.file("a.txt", "needle\n")
    bench.file("sub/.env", "needle=secret\n")
    bench.also(hidden=lambda path: path.name == ".env")
    for mode in ("content", "files", "count"):
        result = await bench.call(GREP, pattern="needle", mode=mode)
        assert "a.txt" in str(result.content) and ".env" not in str(result.content)
    result = await bench.call(GLOB, pattern="**/*")
    assert "a.txt" in str(result.content) and ".env" not in str(result.content)


async def test_a_walk_that_is_too_large_says_so(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        search,
        "python_child",
        lambda *_: ["sh", "-c", f"printf 'a.py\\0002:x\\n'; exit {search_job.Exit.CAPPED}"],
    )
    result = await bench.call(GREP, pattern="TODO")
    assert "a.py:2:x\n[matching lines: 1; stopped after" in str(result.content)


async def test_a_child_that_fails_is_told(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for script, told in (("kill -24 $$", "signal 24"), ("echo Trace; exit 1", "(exit 1): Trace")):
        monkeypatch.setattr(search, "python_child", lambda *_, run=script: ["sh", "-c", run])
        result = await bench.call(GREP, pattern="TODO")
        assert result.is_error and told in str(result.content)


@pytest.mark.skipif(sys.platform != "linux", reason="nobody else can be asked for its limits")
async def test_a_search_may_use_only_so_much_processor(bench: ToolBench) -> None:
    bench.file("src/slow.txt", "a" * 50 + "b\n")
    async with asyncio.TaskGroup() as group:
        call = group.create_task(bench.call(GREP, pattern="(a+)+$", path="src"))
        child = await started_child()
        eventually(lambda: child.rlimit(psutil.RLIMIT_CPU)[0] == SEARCH_CPU_S, "a limit")
        call.cancel()
