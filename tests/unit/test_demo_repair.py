"""The demo model's repair: what it calls, what it changes, and that it says how it ended."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model.conversation import Call
from session_worker.demo_model.intents import demo_script
from session_worker.demo_model.mutations import changes
from session_worker.demo_model.repair import TRIES_MAX
from session_worker.demo_model.reply import Json, Reply, Request
from session_worker.demo_model.verdicts import end_of, frames, summary, why
from session_worker.tools.bash import BASH
from session_worker.tools.edit_file import EDIT_FILE
from session_worker.tools.edit_text import Edit, apply
from session_worker.tools.glob import GLOB
from session_worker.tools.read_file import READ_FILE
from session_worker.tools.todo_write import TODO_WRITE
from tests.support.failing_repo import BROKEN, REPAIRED, failing_repo
from tests.support.tool_bench import ToolBench

PROMPT = "Fix the failing test in this repository"
FILES = ("bash", "read_file", "edit_file", "glob", "todo_write")
DECLINED = "The user declined this call. Do not retry it or work around it. Reason: 2 failed"
TESTS = """\
import unittest
from calc import it
from other import helper

class CalcTest(unittest.TestCase):
    def test_it(self):
        self.assertTrue(check(it))
"""
FAILURE = """\
FAIL: test_it (test_calc.CalcTest.test_it)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/w/test_calc.py", line 7, in test_it
    self.assertTrue(check(it))
{error}
----------------------------------------------------------------------
Ran 1 test in 0.000s

FAILED (failures=1)"""
PYTEST = """\
>       add("a", 2)

tests/test_calc.py:7: in test_err
_ _ _ _ _ _ _ _ _ _

    def add(a, b):
>       return a - b
E       TypeError: no

calc.py:2: TypeError
=========================== short test summary info ============================
FAILED tests/test_calc.py::test_err - TypeError: no
1 failed in 0.04s
[exit 1 · 0.5s · cwd .]"""
PASS = "Ran 1 test in 0.000s\n\nOK\n[exit 0 · 0.1s · cwd .]"

Answer = tuple[str, bool]


@dataclass
class Agent:
    """Plays an agent; `answer` is what a tool says and whether it is an error."""

    answer: Callable[[str, Json], Answer]
    offered: tuple[str, ...] = FILES
    made: list[tuple[str, Json]] = field(default_factory=list[tuple[str, Json]])

    def prompt(self, prompt: str) -> str:
        """The last answer."""
        messages: list[Json] = [{"role": "user", "content": prompt}]
        tools = [{"name": name, "input_schema": {}} for name in self.offered]
        while True:
            reply = demo_script(Request({"messages": messages, "tools": tools}, 1))
            assert isinstance(reply, Reply)
            blocks: list[Any] = [*reply.content]
            uses = [{**b, "id": f"t{len(messages)}_{n}"} for n, b in enumerate(blocks[1:])]
            if not uses:
                return blocks[0]["text"]
            results: list[Json] = []
            for use in uses:
                self.made.append((use["name"], use["input"]))
                text, is_error = self.answer(use["name"], use["input"])
                result = {"type": "tool_result", "tool_use_id": use["id"], "content": text}
                results.append({**result, "is_error": is_error})
            messages += [
                {"role": "assistant", "content": [blocks[0], *uses]},
                {"role": "user", "content": results},
            ]

    def calls(self, name: str) -> list[Json]:
        return [given for tool, given in self.made if tool == name]


@dataclass
class Repository:
    """`calc.py` and `other.py`, which are really run, and their test: whether `check` holds."""

    source: str
    check: str
    declines: str = ""
    other: str = ""

    def __call__(self, tool: str, given: Json) -> Answer:
        if tool == self.declines:
            return DECLINED, True
        match tool:
            case "bash":
                return self._test()
            case "glob":
                return "test_calc.py\nother.py\ncalc.py\n[files: 3]", False
            case "read_file":
                texts = {"test_calc.py": TESTS, "calc.py": self.source, "other.py": self.other}
                rows = texts[given["path"]].rstrip("\n").split("\n")
                return "".join(f"{n:6d}\t{row}\n" for n, row in enumerate(rows, 1)), False
            case "edit_file":
                edits = [Edit(**edit) for edit in given["edits"]]
                if given["path"] == "other.py":
                    self.other = apply(self.other, edits).text
                else:
                    self.source = apply(self.source, edits).text
                return "edited", False
            case _:
                return "", False

    def _test(self) -> Answer:
        names: dict[str, Any] = {}
        try:
            exec(self.other, names)
            exec(compile(self.source, "/w/calc.py", "exec"), names)
            assert eval(self.check, names)
        except Exception:  # noqa: BLE001 -- whatever a change leads to
            return FAILURE.format(error=traceback.format_exc()), True
        return PASS, False


@pytest.mark.parametrize(
    ("broken", "repaired", "check"),
    [
        ("return a - b", "return a + b", "it(2, 3) == 5"),
        ("return a // b", "return a / b", "it(3, 2) == 1.5"),
        ("return a > b", "return a >= b", "it(2, 2) and not it(1, 2)"),
        ("return (a) < (b)", "return (a) > (b)", "it(2, 1) and not it(1, 2)"),
        ("return a and b", "return a or b", "it(0, 1) and not it(0, 0)"),
        ("return sum(range(a))", "return sum(range(a + 1))", "it(3, 0) == 6"),
        ("return sum(range(a, b + 1))", "return sum(range(a, b))", "it(1, 3) == 3"),
        ("return [a, b][1]", "return [a, b][0]", "it(1, 2) == 1"),
        ("a + b", "return a + b", "it(2, 3) == 5"),
        ("c = 2 * a", "c = 2 * a\n    return c", "it(2, 3) == 4"),
        ("return a - a", "return a - b", "it(2, 3) == -1"),
        ("ä = a + b; return a", "ä = a + b; return ä", "it(2, 3) == 5"),
        ("total = a\n    return totl", "total = a\n    return total", "it(2, 3) == 2"),
        ("return hepler(a)", "return helper(a)", "it(2, 3) == 4"),
    ],
)
def test_classical_mistakes_are_repaired(broken: str, repaired: str, check: str) -> None:
    functions = ("def other(a, b):\n    return a - b", "def it(a, b):\n    {}")
    frame = "\n\n\n".join((*functions, "def helper(x):\n    return 2 * x\n"))
    repository = Repository(frame.format(broken), check)
    answer = Agent(repository).prompt(PROMPT)
    assert repository.source == frame.format(repaired)
    assert "The tests pass now. I changed line" in answer
    assert "of calc.py" in answer
    assert f"+ {repaired.splitlines()[-1].strip()}\n" in answer
    assert "FAIL: test_it" in answer
    assert "Ran 1 test in 0.000s, OK" in answer


def test_a_mistake_is_found_in_a_file_that_the_failing_test_only_imports() -> None:
    source, other = "def it(a):\n    return helper(a) + 1\n", "def helper(a):\n    return a + 2\n"
    repository = Repository(source, "it(3) == 7 and it(4) == 9", other=other)
    answer = Agent(repository).prompt(PROMPT)
    assert "of other.py:\n```diff\n- return a + 2\n+ return a * 2\n" in answer
    assert (repository.source, repository.other) == (source, other.replace("+", "*"))


def test_what_cannot_be_repaired_is_undone_and_said_so() -> None:
    source = "def it(a):\n    x = a + 1\n    if x < 3:\n        return 1\n    return a - 1\n"
    repository = Repository(source, "False")
    agent = Agent(repository)
    answer = agent.prompt(PROMPT)
    assert repository.source == source
    tried = sum(len(call["edits"]) for call in agent.calls("edit_file")) // 2
    assert 5 < tried <= TRIES_MAX
    assert f"I tried {tried} small changes in calc.py, other.py" in answer
    assert "FAIL: test_it" in answer


def test_tries_are_bounded() -> None:
    agent = Agent(Repository("def it(a):\n" + "    a = a + 1\n" * 20 + "    return a\n", "False"))
    assert f"I tried {TRIES_MAX} small changes" in agent.prompt(PROMPT)


def test_a_declined_edit_ends_the_repair() -> None:
    repository = Repository("def it(a, b):\n    return a - b\n", "it(2, 3) == 5", "edit_file")
    agent = Agent(repository)
    answer = agent.prompt(PROMPT + ", then run `echo never`")
    assert agent.made[-1][0] == "edit_file"
    assert len(agent.calls("edit_file")) == 1
    assert "You declined `edit_file calc.py`: 2 failed" in answer
    assert "No file is changed." in answer
    assert "not done: `echo never`" in answer


def test_a_declined_run_ends_the_repair_and_the_report_names_the_change_that_stands() -> None:
    repository = Repository("def it(a, b):\n    return a * b\n", "it(2, 3) == 5")

    def answer(tool: str, given: Json) -> Answer:
        if tool == "bash" and agent.calls("edit_file"):
            return DECLINED, True
        return repository(tool, given)

    agent = Agent(answer)
    said = agent.prompt(PROMPT)
    assert "You declined `python3 -B -m unittest`" in said
    assert "Line 2 of calc.py still has my last try" in said
    assert f"+ {repository.source.splitlines()[1].strip()}\n" in said


def test_a_declined_first_run_is_not_followed_by_other_ways_to_run_tests() -> None:
    agent = Agent(Repository("", "", "bash"))
    assert "You declined" in agent.prompt(PROMPT)
    assert len(agent.calls("bash")) == 1


def test_tests_are_looked_for_in_several_ways() -> None:
    agent = Agent(lambda *_: ("Ran 0 tests in 0.000s\n\nNO TESTS RAN", False))
    assert "I found no Python tests" in agent.prompt(PROMPT)
    assert [given["command"] for given in agent.calls("bash")] == [
        "python3 -B -m unittest",
        "python3 -B -m unittest discover -s tests",
        "python3 -B -m pytest -q -p no:cacheprovider",
    ]


def test_the_output_of_pytest_is_understood() -> None:
    run = Call("bash", {}, PYTEST, is_error=True)
    assert end_of(run) == "failed"
    assert end_of(Call("bash", {}, "..\n2 passed in 0.01s", is_error=False)) == "passed"
    assert end_of(Call("bash", {}, "\nno tests ran in 0.01s", is_error=True)) == "no_tests"
    assert frames(PYTEST, ["tests/test_calc.py", "calc.py"]) == [
        ("tests/test_calc.py", 7),
        ("calc.py", 2),
    ]
    assert why(PYTEST) == "FAILED tests/test_calc.py::test_err - TypeError: no, TypeError: no"
    assert summary(PYTEST) == "1 failed in 0.04s"


def test_passing_tests_need_no_repair() -> None:
    agent = Agent(Repository("def it(): pass\n", "True"))
    assert "The tests pass already" in agent.prompt(PROMPT)
    assert not agent.calls("read_file")


def test_the_plan_is_shown_where_a_tool_for_it_is_offered() -> None:
    repository = Repository("def it(a, b):\n    return a - b\n", "it(2, 3) == 5")
    agent = Agent(repository)
    agent.prompt(PROMPT)
    plans = [[t["status"] for t in plan["todos"]] for plan in agent.calls("todo_write")]
    assert [plan.count("completed") for plan in plans] == [0, 1, 2, 3]
    without = Agent(Repository("def it(a, b):\n    return a - b\n", "it(2, 3) == 5"), FILES[:-1])
    assert "The tests pass now" in without.prompt(PROMPT)
    assert not without.calls("todo_write")


def test_a_file_that_has_changed_meanwhile_is_read_again() -> None:
    repository = Repository("def it(a, b):\n    return a - b\n", "it(2, 3) == 5")
    stale = iter(["calc.py was not changed: it has changed since it was read; read it again"])

    def answer(tool: str, given: Json) -> Answer:
        if tool == "edit_file" and (problem := next(stale, "")):
            return problem, True
        return repository(tool, given)

    assert "The tests pass now" in Agent(answer).prompt(PROMPT)


def test_the_report_is_in_the_language_of_the_prompt() -> None:
    repository = Repository("def it(a, b):\n    return a - b\n", "it(2, 3) == 5")
    assert "测试现在通过了" in Agent(repository).prompt("修复这个仓库里失败的测试")


def test_what_follows_a_repair_in_a_sentence_is_done_after_it() -> None:
    repository = Repository("def it(a, b):\n    return a - b\n", "it(2, 3) == 5")
    agent = Agent(repository)
    answer = agent.prompt("Repair this: find the bug, fix it, then read calc.py")
    assert agent.made[-1] == ("read_file", {"path": "calc.py"})
    assert answer.count("The tests pass now") == 1
    assert "`read_file calc.py`:" in answer


def test_a_change_is_named_so_that_it_is_found_once_before_and_after() -> None:
    twice = "    return a + b\n\n\ndef g(a, b):\n    return a + b\n\n\n"
    source = f"def f(a, b):\n{twice}def h(a): b = f'{{a + 1}} {{a}}'\n\n\nx = 1\n"
    found = [*changes("f.py", source, (), ())]
    assert len({change.new for change in found}) == len(found) == 10
    for change in found:
        assert source.find(change.old) == source.rfind(change.old)
        after = source.replace(change.old, change.new)
        assert after.find(change.new) == after.rfind(change.new)
        compile(after, "f.py", "exec")


def test_likely_places_come_first() -> None:
    source = "def f(a, b):\n    return a + b\n\n\ndef g(a, b):\n    return a + b\n"
    assert next(changes("f.py", source, (), {"g"})).line == 6
    assert next(changes("f.py", source, (), ())).line == 2
    assert next(changes("f.py", source, {6}, {"f"})).line == 6


def test_what_is_no_python_is_not_changed() -> None:
    assert [*changes("f.py", "def f(:", (), ())] == []


@pytest.mark.parametrize("offered", [FILES, ("bash",)])
def test_a_real_repository_is_repaired_by_the_real_tools(
    offered: tuple[str, ...], tmp_path: Path
) -> None:
    bench = ToolBench(tmp_path)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    bench.also(env={"HOME": str(bench.outside), "PATH": path})
    bench.ctx.spill_dir.mkdir()
    source = failing_repo(bench.root)
    assert source.read_text() == BROKEN
    specs = {spec.name: spec for spec in (BASH, READ_FILE, EDIT_FILE, GLOB, TODO_WRITE)}
    with asyncio.Runner() as runner:

        def answer(tool: str, given: Json) -> Answer:
            result = runner.run(bench.call(specs[tool], **given))
            assert isinstance(result.content, str)
            return result.content, result.is_error

        said = Agent(answer, offered).prompt(PROMPT)
    assert source.read_text() == REPAIRED
    assert "I changed line 12 of shop.py" in said
    assert "AssertionError: 0 != 180" in said
    assert "Ran 2 tests in" in said
    assert {entry.name for entry in bench.root.iterdir()} == {"shop.py", "test_shop.py"}
