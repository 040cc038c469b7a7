"""The bash tool with a real bash: the working directory is all that carries over."""

import os
from pathlib import Path

import pytest

from tests.support.bash_bench import Bench, body, footer


@pytest.mark.parametrize(
    "script",
    [
        "cd sub",
        "cd sub; exit 7",
        "cd sub\nfor",
        "cd sub; set -euo pipefail; false; true",
        "cd sub; pwd() { echo /; }; set -x",
        "cd sub; kill -TERM $$",
        "cd sub; sleep 0.2 & :",
    ],
)
async def test_the_directory_carries_over(bench: Bench, script: str) -> None:
    (bench.root / "sub").mkdir()
    assert " · cwd sub" in footer(await bench.run(script))
    assert body(await bench.run("pwd")) == str(bench.root / "sub")


@pytest.mark.parametrize(
    "script",
    [
        "(cd sub)",
        "cd sub; exec true",
        "cd sub; trap true EXIT",
        "cd sub; kill -KILL $$",
        "cd sub; )",
        "cd sub; rmdir ../sub",
        "for fd in /proc/$$/fd/*; do echo sub >&${fd##*/}; done; kill -KILL $$",
    ],
)
async def test_the_old_directory_stays_if_no_new_one_is_known(bench: Bench, script: str) -> None:
    (bench.root / "sub").mkdir()
    await bench.run(script)
    assert bench.shell.cwd == bench.root


async def test_a_directory_outside_is_shown_whole(bench: Bench, tmp_path: Path) -> None:
    assert footer(await bench.run("cd ..")) == f"[exit 0 · cwd {tmp_path}]"


async def test_a_directory_of_any_name_carries_over(bench: Bench) -> None:
    await bench.run("mkdir $'new\\nline\\xff'; cd new*")
    assert os.fsencode(bench.shell.cwd).endswith(b"/new\nline\xff")
    assert not (await bench.run("pwd")).is_error


async def test_variables_do_not_carry_over(bench: Bench) -> None:
    await bench.run("export KEPT=1; shopt -s nullglob")
    assert body(await bench.run("echo [$KEPT]; shopt -q nullglob || echo off")) == "[]\noff"


async def test_a_workdir_is_used_once_from_the_carried_directory(bench: Bench) -> None:
    (bench.root / "a" / "b").mkdir(parents=True)
    await bench.run("cd a")
    result = await bench.run("pwd; cd /", workdir="b")
    assert body(result) == str(bench.root / "a" / "b")
    assert footer(result) == "[exit 0 · cwd a]"
    assert footer(await bench.run("cd b", workdir="")) == "[exit 0 · cwd a/b]"


@pytest.mark.parametrize("workdir", ["missing", "file", "nul\0", "\ud83d"])
async def test_a_workdir_that_is_none_is_an_error(bench: Bench, workdir: str) -> None:
    (bench.root / "file").touch()
    result = await bench.run("touch ran", workdir=workdir)
    assert result.is_error
    assert result.content.startswith("no such directory: ")
    assert not (bench.root / "ran").exists()


async def test_a_deleted_directory_falls_back_to_the_root_with_a_note(bench: Bench) -> None:
    await bench.run("mkdir sub; cd sub")
    (bench.root / "sub").rmdir()
    result = await bench.run("pwd")
    assert body(result) == str(bench.root)
    assert footer(result) == "[exit 0 · cwd . (sub is gone)]"
    assert footer(await bench.run("true")) == "[exit 0 · cwd .]"
