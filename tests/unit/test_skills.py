"""Skills: which are found, which are refused and why, what is listed and what is loaded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from session_worker.project.frontmatter import split
from session_worker.project.place import Place
from session_worker.project.skills import SKILL_LIST_BYTES, Skills, find_skills, skill_list
from session_worker.tools.skill import SKILL, SkillParams


@pytest.fixture
def place(tmp_path: Path) -> Place:
    for directory in ("user", "home", "repo/.git", "repo/a"):
        (tmp_path / directory).mkdir(parents=True)
    return Place(tmp_path / "repo/a", tmp_path / "repo", tmp_path / "user", tmp_path / "home")


def write(directory: Path, folder: str, /, body: str = "Do it.", **fields: str) -> Path:
    path = directory / folder / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {"name": folder, "description": f"about {folder}"} | fields
    lines = [f"{key}: {value}" for key, value in values.items()]
    path.write_text("\n".join(["---", *lines, "---", "", body, ""]))
    return path


def load(skills: Skills, name: str, args: str | None = None) -> Any:
    params = SkillParams(name=name, args=args)
    return asyncio.run(SKILL.handler(params, SimpleNamespace(skills=skills.by_name)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("plain text", "plain text"),
        ("Use this: it helps", "Use this: it helps"),
        ("plain\n  goes on\n\n  and on", "plain goes on  and on"),
        ("text # comment", "text"),
        ("C# and F#", "C# and F#"),
        ('"quoted: \\"yes\\" \\u00e9" # comment', 'quoted: "yes" é'),
        ('"over\n  lines"', "over lines"),
        ("'it''s'", "it's"),
        (">-\n  folded\n  text", "folded\ntext"),
        ("|\n  # kept\n  text", "# kept\ntext"),
        ("\n  below", "below"),
    ],
)
def test_values_are_read_as_people_write_them(written: str, read: str) -> None:
    values, body = split(f"---\nname: x\ndescription: {written}\nlicense: MIT\n---\nBody\n---\n")
    assert values == {"name": "x", "description": read}
    assert body == "Body\n---"


def test_what_nobody_reads_may_be_anything() -> None:
    text = "---\n# comment\nname: x\nmetadata:\n  name: y\ntags:\n- a\nodd: 'a' | \"b\"\n---\n"
    assert split(text) == ({"name": "x"}, "")


@pytest.mark.parametrize(
    "text",
    ["", "name: x", "---\nname: x\n", "---\nname: x\nname: y\n---\n", "---\nname x\n---\n",
     '---\nname: "x\n---\n', '---\nname: "x" y\n---\n', '---\nname: "\\q"\n---\n'],
)  # fmt: skip
def test_a_broken_head_has_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        split(text)


def test_a_skill_is_found_in_every_place(place: Place) -> None:
    assert place.home
    expected = {
        "own": place.config / "skills",
        "home-agents": place.home / ".agents/skills",
        "home-claude": place.home / ".claude/skills",
        "near": place.cwd / ".agents/skills",
        "root-agents": place.root / ".agents/skills",
        "root-claude": place.root / ".claude/skills",
    }
    for name, directory in expected.items():
        write(directory, name)
    write(place.root.parent / ".agents/skills", "outside")
    skills = find_skills(place)
    assert list(skills.by_name) == list(expected)
    assert skills.problems == []


def test_the_users_skill_wins_then_the_nearest(place: Place) -> None:
    far = write(place.root / ".agents/skills", "both", body="far")
    write(place.cwd / ".claude/skills", "both", body="near")
    assert "near" in load(find_skills(place), "both").content
    mine = write(place.config / "skills", "both", body="mine")
    skills = find_skills(place)
    assert "mine" in load(skills, "both").content
    assert f"{far}: {mine} has the same name" in skills.problems


def test_one_directory_under_two_names_is_no_conflict(place: Place) -> None:
    write(place.root / ".agents/skills", "shared")
    (place.root / ".claude").mkdir()
    (place.root / ".claude/skills").symlink_to("../.agents/skills")
    skills = find_skills(place)
    assert list(skills.by_name) == ["shared"]
    assert skills.problems == []


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"name": "other"}, "its directory is 'good'"),
        ({"name": "Good"}, "name must be"),
        ({"name": ""}, "name must be"),
        ({"description": ""}, "description must be"),
        ({"description": "d" * 1025}, "not 1025"),
        ({"compatibility": "c" * 501}, "compatibility must be"),
    ],
)
def test_an_invalid_skill_is_left_out_with_its_reason(
    place: Place, fields: dict[str, str], reason: str
) -> None:
    file = write(place.cwd / ".agents/skills", "good", **fields)
    write(place.cwd / ".agents/skills", "fine", description="d" * 1024, compatibility="c" * 500)
    skills = find_skills(place)
    assert list(skills.by_name) == ["fine"]
    (problem,) = skills.problems
    assert problem.startswith(f"{file}: ")
    assert reason in problem


def test_a_name_may_be_no_longer_than_the_format_has_it(place: Place) -> None:
    write(place.cwd / ".agents/skills", "n" * 64)
    write(place.cwd / ".agents/skills", "n" * 65)
    skills = find_skills(place)
    assert list(skills.by_name) == ["n" * 64]
    assert len(skills.problems) == 1


def test_directories_that_hold_no_skill_are_no_problem(place: Place) -> None:
    (place.cwd / ".agents/skills/notes").mkdir(parents=True)
    (place.cwd / ".agents/skills/README.md").write_text("hello")
    assert find_skills(place) == Skills()


def test_a_project_skill_that_is_a_link_out_of_the_project_is_refused(place: Place) -> None:
    write(place.root.parent / "elsewhere", "away")
    directory = place.cwd / ".agents/skills"
    directory.mkdir(parents=True)
    (directory / "away").symlink_to(place.root.parent / "elsewhere/away")
    skills = find_skills(place)
    assert skills.by_name == {}
    assert "leads out of" in skills.problems[0]


def test_the_users_own_may_be_a_link(place: Place) -> None:
    write(place.root.parent / "elsewhere", "away")
    (place.config / "skills").symlink_to(place.root.parent / "elsewhere")
    assert list(find_skills(place).by_name) == ["away"]


def test_the_list_has_a_line_each_and_an_end(place: Place) -> None:
    write(place.cwd / ".agents/skills", "multi", description=">\n  one\n  two")
    assert skill_list(find_skills(place).by_name) == "- multi: one two"
    for n in range(20):
        write(place.cwd / ".agents/skills", f"many-{n:02}", description="é" * 500)
    *lines, last = skill_list(find_skills(place).by_name).split("\n")
    assert len("\n".join(lines).encode()) <= SKILL_LIST_BYTES
    assert last == f"- and {21 - len(lines)} more, for which there is no room here"
    assert lines[0].startswith("- many-00: é")


def test_no_skills_are_no_list() -> None:
    assert skill_list({}) == ""


def test_a_skill_is_loaded_with_its_directory_and_arguments(place: Place) -> None:
    file = write(place.cwd / ".agents/skills", "one", body="Do it.", compatibility="needs jq")
    result = load(find_skills(place), "one", args="now")
    assert not result.is_error
    head, needs, _, *body = result.content.split("\n")
    assert str(file.parent) in head
    assert needs == "It needs: needs jq"
    assert body == ["Do it.", "", "Arguments: now"]


def test_arguments_stand_where_the_skill_wants_them(place: Place) -> None:
    write(place.cwd / ".agents/skills", "one", body="Fix $ARGUMENTS.")
    skills = find_skills(place)
    assert load(skills, "one", args="it").content.endswith("\nFix it.")
    assert load(skills, "one").content.endswith("\nFix .")


def test_a_skill_is_read_as_it_is_now(place: Place) -> None:
    file = write(place.cwd / ".agents/skills", "one", body="old")
    skills = find_skills(place)
    write(place.cwd / ".agents/skills", "one", body="new")
    assert load(skills, "one").content.endswith("new")
    file.unlink()
    assert load(skills, "one").is_error
    file.symlink_to(write(place.root.parent, "one", body="the secret"))
    assert load(skills, "one").is_error


def test_an_unknown_skill_is_answered_with_the_known_ones(place: Place) -> None:
    write(place.cwd / ".agents/skills", "one")
    result = load(find_skills(place), "two\ud800")
    assert result.is_error
    assert "one" in result.content
    assert load(Skills(), "x").is_error
