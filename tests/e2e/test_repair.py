"""The demo model at real work, and a person who answers what it asks for, over the endpoint."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint
from tests.support.failing_repo import BROKEN, REPAIRED, TESTS, failing_repo, is_repaired

FIX = "Fix the failing test in this repository"
REASON = "not while I am looking"
DECLINED = {"option_id": "reject_once", "reason": REASON}

Json = dict[str, Any]


def allow(_: Json) -> Json:
    return {"option_id": "allow_once"}


class Person:
    """Prompts, answers questions, and remembers what was asked; `text` is the last answer."""

    def __init__(self, endpoint: Endpoint, answer: Callable[[Json], Json] = allow) -> None:
        self._endpoint = endpoint
        self._answer = answer
        self.asked: list[Json] = []
        self.text = ""

    def prompt(self, prompt: str) -> None:
        base = f"/sessions/{self._endpoint.session_id}"
        after = self._endpoint.events()[-1]["seq"]
        with self._endpoint.stream("GET", f"{base}/events?after={after}") as events:
            run_id = self._endpoint.prompt(prompt, "async")["run_id"]
            for event in events:
                if event["type"] == "permission_requested":
                    question = event["data"]
                    self.asked.append(question["toolCall"])
                    path = f"{base}/permissions/{question['request_id']}"
                    assert self._endpoint.post(path, self._answer(question["toolCall"]))[0] == 200
                if event["type"] == "run_finished" and event["run_id"] == run_id:
                    break
        run = self._endpoint.get(f"/runs/{run_id}")[1]
        assert run["status"] == "completed", run
        self.text = run["result"]["final_text"]

    @property
    def kinds(self) -> list[str]:
        return [call["kind"] for call in self.asked]


@pytest.fixture
def endpoint(daemon: Daemon, work: Path) -> Endpoint:
    return daemon.session(work, mode="ask")


def test_a_failing_repository_is_repaired_with_every_step_allowed(
    endpoint: Endpoint, work: Path
) -> None:
    source = failing_repo(work)
    assert not is_repaired(work)
    person = Person(endpoint)
    person.prompt(FIX)
    assert is_repaired(work)
    assert source.read_text() == REPAIRED
    assert (work / "test_shop.py").read_text() == TESTS
    assert person.kinds == ["execute", "edit", "execute", "edit", "execute"]
    assert "I changed line 12 of shop.py" in person.text
    assert "AssertionError: 0 != 180" in person.text
    assert "Ran 2 tests in" in person.text
    plans = [e["data"] for e in endpoint.events() if e["data"].get("sessionUpdate") == "plan"]
    assert {entry["status"] for entry in plans[-1]["entries"]} == {"completed"}


def test_a_rejected_edit_leaves_the_file_untouched_and_is_reported(
    endpoint: Endpoint, work: Path
) -> None:
    source = failing_repo(work)
    person = Person(endpoint, lambda call: DECLINED if call["kind"] == "edit" else allow(call))
    person.prompt(FIX)
    assert person.kinds == ["execute", "edit"]
    assert source.read_text() == BROKEN
    assert f"You declined `edit_file shop.py`: {REASON}" in person.text
    assert "No file is changed." in person.text


def test_a_file_is_created_once_it_is_allowed(endpoint: Endpoint, work: Path) -> None:
    prompt = "Create a file called hello.py that prints Hello, World!"
    Person(endpoint, lambda _: DECLINED).prompt(prompt)
    assert not (work / "hello.py").exists()
    person = Person(endpoint)
    person.prompt(prompt)
    assert person.kinds == ["edit"]
    ran = subprocess.run(["python3", work / "hello.py"], capture_output=True, check=True)
    assert ran.stdout == b"Hello, World!\n"


def test_python_files_are_listed_without_a_question(endpoint: Endpoint, work: Path) -> None:
    for name in ("one.py", "two.py", "three.txt"):
        (work / name).touch()
    person = Person(endpoint)
    person.prompt("List all Python files in this directory")
    assert not person.asked
    assert "one.py" in person.text
    assert "two.py" in person.text
    assert "three.txt" not in person.text


def test_the_git_branch_is_told(endpoint: Endpoint, work: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "trunk"], cwd=work, check=True)
    person = Person(endpoint)
    person.prompt("What is the current git branch?")
    assert "trunk" in person.text
