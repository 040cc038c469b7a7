"""The glob tool: its patterns, what a walk leaves out, and that nothing leads outside."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from session_worker.tools import gitignore, glob, glob_pattern, search, walk
from session_worker.tools.glob import GLOB
from session_worker.tools.walk import Walk
from tests.support.tool_bench import ToolBench

MATCHES = {
    "*.py": ["a.py", ".py"],
    "**/*.py": ["a.py", ".py", "src/b.py", "src/deep/c.py"],
    "src/**": ["src/b.py", "src/x.ts", "src/deep/c.py", "src/deep/[1].txt"],
    "src/**/c.py": ["src/deep/c.py"],
    "**/deep/**/c.py": ["src/deep/c.py"],
    "./src//b.py": ["src/b.py"],
    "s?c/[a-c].py": ["src/b.py"],
    "src/[!a-c].ts": ["src/x.ts"],
    "src/[^a-c].ts": ["src/x.ts"],
    "src/{b.py,x.ts,deep/{c,d}.py}": ["src/b.py", "src/x.ts", "src/deep/c.py"],
    "**/[[]1].{txt}": [],
    "**/[[]1].txt": ["src/deep/[1].txt"],
    "A.py": [],
    "**": ["a.py", ".py", "src/b.py", "src/x.ts", "src/deep/c.py", "src/deep/[1].txt"],
}
PATHS = MATCHES["**"]


@pytest.mark.parametrize("pattern", MATCHES)
def test_patterns_mean_what_people_expect(pattern: str) -> None:
    parsed = glob_pattern.parse(pattern)
    assert [path for path in PATHS if parsed.matches(path)] == MATCHES[pattern]


@pytest.mark.parametrize(
    ("pattern", "entered"),
    [
        ("*.py", []),
        ("src/*.py", ["src"]),
        ("**/x", ["src", "src/deep", "lib"]),
        ("{lib,src/*}/x", ["src", "src/deep", "lib"]),
    ],
)
def test_only_directories_that_can_hold_a_match_are_entered(
    pattern: str, entered: list[str]
) -> None:
    parsed = glob_pattern.parse(pattern)
    assert [path for path in ("src", "src/deep", "lib") if parsed.may_hold(path)] == entered


@pytest.mark.parametrize("pattern", ["*/../x", "{a,..}/x", "{a,b}" * 7])
def test_patterns_that_lead_up_or_grow_without_bound_are_refused(pattern: str) -> None:
    with pytest.raises(glob_pattern.BadPattern):
        glob_pattern.parse(pattern)


def test_no_pattern_takes_long() -> None:
    hostile = "**/" * 50 + "*a" * 100 + "*b"
    path = "/".join(["a" * 200] * 50)
    assert not glob_pattern.parse(hostile).matches(path)
    assert gitignore.verdict(gitignore.parse(hostile), path, directory=False) is None


@pytest.mark.parametrize(
    ("pattern", "split"),
    [
        ("*.py", (".", "*.py")),
        ("src/lib/*.py", ("src/lib", "*.py")),
        ("src/a.py", ("src", "a.py")),
        ("src/{a,b}/c", ("src", "{a,b}/c")),
        ("../x/*", ("../x", "*")),
        ("/etc/*", ("/etc", "*")),
        ("/*", ("/", "*")),
    ],
)
def test_directories_that_a_pattern_names_are_where_it_starts(
    pattern: str, split: tuple[str, str]
) -> None:
    assert glob_pattern.split_literal(pattern) == split


IGNORES = [
    "*.log\n!keep.log", "build/", "build", "/top.txt", "sub/top.txt", "**/top.txt", "sub/**",
    "sub/**\n!sub/keep.log", "sub/*\n!sub/build", "*\n!*/\n!*.txt", "/*\n!/sub", "**/build/**",
    "s?b/", "[a-t]op.txt", "[!s]*", "#top.txt", r"\#hash", r"\!bang", "sp \n", "sp\\ \n", "tab\r",
    "!", "/", "", "\\", r"k\eep.log", r"\*.log", "sub/", "*/build/", "**", "foo/**/top.txt",
    "sub//top.txt",
]  # fmt: skip
TREE = [
    "top.txt", "a.log", "keep.log", "build/top.txt", "sub/top.txt", "sub/keep.log", "#hash",
    "!bang", "sp", "sp ", "tab", "*.log", "sub/build/deep/top.txt", "foo/top.txt",
    "foo/a/b/top.txt",
]  # fmt: skip


def test_gitignore_files_mean_what_git_says(tmp_path: Path) -> None:
    for n, text in enumerate(IGNORES):
        for name in TREE:
            path = tmp_path / str(n) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        (tmp_path / str(n) / ".gitignore").write_text(text, newline="")
    asked = [f"{n}/{name}" for n in range(len(IGNORES)) for name in TREE]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    answer = subprocess.run(
        ["git", "-c", "core.excludesFile=", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=tmp_path,
        input="\0".join(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    ignored = set(answer.stdout.split("\0"))
    walked = {path for path, _ in Walk(str(tmp_path), False, lambda _: True)}
    assert walked.intersection(asked) == set(asked) - ignored


def test_rules_of_a_directory_inside_win_and_a_repository_inside_has_its_own(
    tmp_path: Path,
) -> None:
    for name in ("a.log", "in/keep.log", "in/a.log", "repo/.git/HEAD", "repo/a.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("*.log")
    (tmp_path / "in/.gitignore").write_text("!keep.log")
    found = [path for path, _ in Walk(str(tmp_path), False, lambda _: True)]
    assert found == [".gitignore", "in", "in/.gitignore", "in/keep.log", "repo", "repo/a.log"]


def test_a_gitignore_that_is_a_pipe_or_a_link_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("*")
    for name in ("link", "pipe"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / "link/.gitignore").symlink_to("../rules")
    os.mkfifo(tmp_path / "pipe/.gitignore")
    with (tmp_path / "pipe/.gitignore").open("r+b", buffering=0) as pipe:
        pipe.write(b"*\n")
        found = {path for path, _ in Walk(str(tmp_path), False, lambda _: True)}
    assert {"link/file", "pipe/file"} < found


@pytest.mark.parametrize("tree", ["abcd", "a/b/c/d"])
def test_a_walk_ends_at_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tree: str
) -> None:
    for name in tree if "/" not in tree else [tree]:
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(walk, "WALK_ENTRIES", 3)
    small, large = Walk(str(tmp_path), True, lambda _: False), Walk(str(tmp_path), True, bool)
    assert len(list(large)) == 3 and large.capped
    assert len(list(small)) == (3 if tree == "abcd" else 1) and small.capped == (tree == "abcd")


@pytest.fixture
def bench(tmp_path: Path) -> ToolBench:
    bench = ToolBench(tmp_path)
    for age, name in enumerate(("new.py", "src/b.py", "src/a.py", "x.log", "node_modules/m.py")):
        os.utime(bench.file(name), (1_000_000 - age, 1_000_000 - age))
    bench.file(".gitignore", "*.log")
    (bench.outside / "secret.py").touch()
    (bench.root / "secret.py").symlink_to(bench.outside / "secret.py")
    (bench.root / "out").symlink_to(bench.outside)
    (bench.root / "loop").symlink_to(bench.root)
    (bench.root / "self.py").symlink_to("self.py")
    return bench


ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "the newest comes first, and a link that leads out is left out": (
        {"pattern": "**/*.py"},
        "new.py\nsrc/b.py\nsrc/a.py\n[files: 3; left out, for a rule or a link out: 1]",
    ),
    "what is ignored comes on demand": (
        {"pattern": "*.log", "include_ignored": True},
        "x.log\n[files: 1]",
    ),
    "what is pruned comes by name": (
        {"pattern": "node_modules/*"},
        "node_modules/m.py\n[files: 1]",
    ),
    "a path moves the start": ({"pattern": "b.*", "path": "src"}, "src/b.py\n[files: 1]"),
    "directories are listed on demand": ({"pattern": "*/"}, "src/\n[directories: 1]"),
    "nothing found is no error": (
        {"pattern": "a.py"},
        "[no files match; **/a.py looks in all directories below]",
    ),
}


async def test_files_are_found(bench: ToolBench) -> None:
    results = await asyncio.gather(*(bench.call(GLOB, **given) for given, _ in ANSWERS.values()))
    assert not any(result.is_error for result in results)
    answers = (result.content for result in results)
    assert dict(zip(ANSWERS, answers, strict=True)) == {n: case[1] for n, case in ANSWERS.items()}


@pytest.mark.parametrize("pattern", ["../outside/*", "/etc/*", "out/*", "new.py/*", "none/*"])
async def test_a_pattern_starts_inside_or_not_at_all(bench: ToolBench, pattern: str) -> None:
    result = await bench.call(GLOB, pattern=pattern)
    assert result.is_error and "\n" not in str(result.content)
    assert GLOB.paths(GLOB.params(pattern=pattern)) == [str(Path(pattern).parent)]


async def test_a_directory_that_was_granted_is_listed(bench: ToolBench) -> None:
    bench.also(granted=frozenset({bench.outside}))
    result = await bench.call(GLOB, pattern=f"{bench.outside}/*")
    assert result.content == f"{bench.outside}/secret.py\n[files: 1]"


async def test_only_the_newest_are_listed_of_many(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glob, "GLOB_PATHS", 2)
    result = await bench.call(GLOB, pattern="{src/,}*[wab].py")
    assert result.content == "new.py\nsrc/b.py\n[the newest 2 of 3 files]"
    assert result.meta == {"total": 3, "more": True}


async def test_a_name_of_any_bytes_is_one_line(bench: ToolBench) -> None:
    names = [b"a\nb.odd", b"$(x).odd", b"\x1b[2J.odd"]
    names += [b"\xff.odd"] * (sys.platform != "darwin")
    for name in names:
        Path(os.fsdecode(bytes(bench.root) + b"/" + name)).touch()
    result = await bench.call(GLOB, pattern="*.odd")
    assert str(result.content).count("\n") == len(names)
    assert str(result.content).replace("\n", "").replace("\ufffd", "?").isascii()


async def test_a_walk_that_takes_too_long_is_ended(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SEARCH_S", 0.1)
    monkeypatch.setattr(search, "python_child", lambda *_: ["sleep", "100"])
    result = await bench.call(GLOB, pattern="*")
    assert result.is_error and "stopped after" in str(result.content)


async def test_a_child_that_fails_is_told(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "python_child", lambda *_: ["sh", "-c", "echo Trace; exit 1"])
    result = await bench.call(GLOB, pattern="*")
    assert (result.content, result.is_error) == ("the search failed (exit 1): Trace", True)
