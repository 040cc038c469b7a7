"""The system prompt, the facts about the place in it, and that finding them starts nothing."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from session_worker.project import git
from session_worker.project.environment import ENTRIES_SHOWN
from session_worker.project.git import Checkout, checkout, read_branch
from session_worker.project.place import Place
from session_worker.project.skills import find_skills
from session_worker.prompt import ROLE, SUBAGENT, system_prompt

Git = Callable[..., str]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for directory in ("config", "home", "work"):
        (tmp_path / directory).mkdir()
    return tmp_path / "work"


@pytest.fixture
def environ(work: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(work.parent / "home")}


@pytest.fixture
def run_git(work: Path, environ: dict[str, str]) -> Git:
    identity = {
        f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }

    def run(*words: str) -> str:
        command = ["git", *words]
        return subprocess.check_output(command, cwd=work, env=environ | identity, text=True)

    run("init", "-q", "-b", "trunk")
    return run


def prompt(work: Path, environ: dict[str, str], **more: Any) -> str:
    spec: Any = SimpleNamespace(
        cwd=work,
        system=None,
        mode="ask",
        parent=None,
        tool_env=environ,
        provider=SimpleNamespace(model="a-model"),
        permissions=SimpleNamespace(additional_dirs=()),
        private={"config": Path(environ["HOME"]).parent / "config/config.toml"},
    )
    vars(spec).update(more)
    place = Place.of(spec)
    return asyncio.run(system_prompt(spec, place, find_skills(place).by_name))


def test_the_fixed_text_is_short() -> None:
    assert len(ROLE) / 3.6 <= 1500, "tokens, roughly"


def test_a_bare_place_gets_role_and_environment_only(work: Path, environ: dict[str, str]) -> None:
    text = prompt(work, environ)
    assert text.startswith(ROLE)
    assert text.endswith("</environment>")
    facts = dict(re.findall(r"^([A-Z][a-z ]+): (.*)$", text, re.MULTILINE))
    assert facts["Working directory"] == str(work)
    assert facts["Git"] == "none"
    assert facts["Model"] == "a-model"
    assert facts["Permission mode"] == "ask"


def test_every_block_says_whose_it_is(work: Path, environ: dict[str, str]) -> None:
    (work / "AGENTS.md").write_text("rules of the project")
    (work.parent / "config/AGENTS.md").write_text("my rules")
    (work / ".agents/skills/one").mkdir(parents=True)
    (work / ".agents/skills/one/SKILL.md").write_text("---\nname: one\ndescription: d\n---\nbody")
    text = prompt(work, environ)
    places = [text.index(part) for part in ("</environment>", "my rules", "rules of", "- one: d")]
    assert places == sorted(places)
    assert "body" not in text[places[-1] :]
    assert 'source="user">\nmy rules' in text
    assert 'source="project">\nrules of the project' in text


def test_a_session_s_own_text_replaces_the_role_only(work: Path, environ: dict[str, str]) -> None:
    text = prompt(work, environ, system="Be brief.")
    assert text.startswith("Be brief.\n\n")
    assert ROLE not in text
    assert f"Working directory: {work}" in text


def test_a_subagent_is_told_who_reads_it_and_what(work: Path, environ: dict[str, str]) -> None:
    text = prompt(work, environ, system="Be brief.", parent="another session")
    assert text.startswith(f"Be brief.\n\n{SUBAGENT}\n\n")
    assert SUBAGENT not in prompt(work, environ)


def test_it_is_the_same_every_time_and_names_the_day_but_no_time(
    work: Path, environ: dict[str, str]
) -> None:
    first = prompt(work, environ)
    assert prompt(work, environ) == first
    assert f"Date: {datetime.now(UTC).date()}" in first
    assert not re.search(r"\d\d:\d\d", first)


def test_entries_are_listed_up_to_a_number(work: Path, environ: dict[str, str]) -> None:
    (work / "src").mkdir()
    for n in range(ENTRIES_SHOWN):
        (work / f"f{n:02}").touch()
    text = prompt(work, environ)
    listed = re.findall(r"^  (.*)$", text, re.MULTILINE)
    assert listed[0] == "f00"
    assert len(listed) == ENTRIES_SHOWN + 1
    assert listed[-1] == "… and 1 others"
    (work / "f00").unlink()
    assert "\n  src/\n" in prompt(work, environ)


def test_a_file_name_makes_no_fact(work: Path, environ: dict[str, str]) -> None:
    (work / "a\nDate: never").touch()
    assert "\n  a Date: never\n" in prompt(work, environ)


def test_programs_are_looked_up_where_tools_would_find_them(
    work: Path, environ: dict[str, str]
) -> None:
    bin_dir = work.parent / "bin"
    bin_dir.mkdir()
    (bin_dir / "rg").touch(0o755)
    text = prompt(work, environ | {"PATH": str(bin_dir)})
    assert "Programs: no git, rg, no gh" in text


def test_a_branch_and_its_changes_are_named(
    work: Path, environ: dict[str, str], run_git: Git
) -> None:
    for name in ("kept", "changed", "with\nnewline"):
        (work / name).write_text("x\n")
    run_git("add", ".")
    run_git("commit", "-q", "-m", "x")
    assert f"Git: root {work}, branch trunk, 0 uncommitted changes" in prompt(work, environ)
    (work / "changed").write_text("y\n")
    run_git("mv", "with\nnewline", "moved")
    (work / "new").touch()
    assert asyncio.run(checkout(work, environ)) == Checkout("trunk", 4)
    (work / "sub").mkdir()
    assert f"Git: root {work}, branch trunk, 4 uncommitted" in prompt(work / "sub", environ)


def test_a_detached_head_is_named_by_its_commit(
    work: Path, environ: dict[str, str], run_git: Git
) -> None:
    run_git("commit", "-q", "--allow-empty", "-m", "x")
    run_git("checkout", "-q", "--detach")
    found = asyncio.run(checkout(work, environ))
    assert re.fullmatch(r"detached at [0-9a-f]{8}", found.branch or "")


def test_without_a_git_that_answers_the_branch_is_read_from_its_file(
    work: Path,
    environ: dict[str, str],
    run_git: Git,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    assert asyncio.run(checkout(work, environ | {"PATH": "/nowhere"})) == Checkout("trunk", None)
    monkeypatch.setattr(git, "GIT_STATUS_S", 0.05)
    silent = tmp_path / "bin"
    silent.mkdir()
    (silent / "git").write_text("#!/bin/sh\nexec sleep 60\n")
    (silent / "git").chmod(0o755)
    path = f"{silent}:{environ['PATH']}"
    assert asyncio.run(checkout(work, environ | {"PATH": path})) == Checkout("trunk", None)


@pytest.mark.parametrize("head", ["", "garbage", "ref: refs/heads/.invalid\n", "\0"])
def test_a_head_that_says_nothing_is_unknown(
    work: Path, environ: dict[str, str], head: str
) -> None:
    (work / ".git").mkdir()
    (work / ".git/HEAD").write_text(head)
    assert read_branch(work) is None
    assert f"Git: root {work}, branch unknown\n" in prompt(work, environ)


def test_a_worktree_s_branch_is_found_through_its_file(work: Path) -> None:
    (work.parent / "real").mkdir()
    (work.parent / "real/HEAD").write_text("ref: refs/heads/topic/x\n")
    (work / ".git").write_text("gitdir: ../real\n")
    assert read_branch(work) == "topic/x"


def test_nothing_that_a_repository_configures_is_started(
    work: Path, environ: dict[str, str], run_git: Git
) -> None:
    marker, program = work.parent / "marker", work.parent / "program"
    program.write_text(f"#!/bin/sh\necho started >> {marker}\ncat\n")
    program.chmod(0o755)
    (work / "file").write_text("x\n")
    (work / ".gitattributes").write_text("* filter=Evil.One\n")
    run_git("add", ".")
    run_git("commit", "-q", "-m", "x")
    run_git("config", "core.fsmonitor", str(program))
    run_git("config", "filter.Evil.One.clean", str(program))
    run_git("config", "filter.Evil.One.process", str(program))
    run_git("config", "filter.Evil.One.required", "true")
    shutil.copy(program, work / ".git/hooks/post-index-change")
    (work / "file").write_text("y\n")
    assert asyncio.run(checkout(work, environ)) == Checkout("trunk", 1)
    assert not marker.exists()
    subprocess.run(["git", "status"], cwd=work, env=environ, capture_output=True, check=False)
    assert marker.exists(), "an ordinary git status is not that careful"


def test_nothing_is_fetched_for_a_partial_clone(
    work: Path, environ: dict[str, str], run_git: Git
) -> None:
    marker, program = work.parent / "marker", work.parent / "program"
    program.write_text(f"#!/bin/sh\necho started >> {marker}\n")
    program.chmod(0o755)
    (work / "sub").mkdir()
    (work / "sub/file").touch()
    run_git("add", ".")
    run_git("commit", "-q", "-m", "x")
    run_git("config", "core.repositoryformatversion", "1")
    run_git("config", "extensions.partialClone", "origin")
    run_git("config", "remote.origin.promisor", "true")
    run_git("config", "remote.origin.url", "ssh://host/x")
    run_git("config", "core.sshCommand", str(program))
    tree = run_git("rev-parse", "HEAD^{tree}").strip()
    (work / ".git/objects" / tree[:2] / tree[2:]).unlink()
    assert asyncio.run(checkout(work, environ)) == Checkout("trunk", None)
    assert not marker.exists()
    subprocess.run(["git", "status"], cwd=work, env=environ, capture_output=True, check=False)
    assert marker.exists(), "an ordinary git status fetches what is missing"


def test_a_filter_that_cannot_be_switched_off_by_name_means_no_status(
    work: Path, environ: dict[str, str], run_git: Git
) -> None:
    run_git("config", "--file", ".git/config", "filter.a=b.clean", "touch marker")
    assert asyncio.run(checkout(work, environ)) == Checkout("trunk", None)


def test_a_git_inside_the_project_is_not_started(
    work: Path, environ: dict[str, str], run_git: Git
) -> None:
    (work / "bin").mkdir()
    (work / "bin/git").write_text(f"#!/bin/sh\ntouch {work.parent}/marker\n")
    (work / "bin/git").chmod(0o755)
    inside = f"{work}/bin:bin:{environ['PATH']}"
    assert asyncio.run(checkout(work, environ | {"PATH": inside})) == Checkout("trunk", 1)
    assert not (work.parent / "marker").exists()


def test_a_repository_cannot_point_git_at_other_directories(
    work: Path, environ: dict[str, str], run_git: Git
) -> None:
    (work.parent / "elsewhere").touch()
    run_git("config", "core.worktree", str(work.parent))
    assert asyncio.run(checkout(work, environ)) == Checkout("trunk", 0)
