"""Answers that are remembered: for a project in the state directory, for a session in its
transcript, and for nobody when in doubt."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from session_worker.memory import Memory
from session_worker.transcript import Transcript, TranscriptFull, read
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.remembered import Remembered
from sidecar.protocol.rules import Rule

A, B = Path("/work/a"), Path("/work/b")


@pytest.fixture
def store(tmp_path: Path) -> Remembered:
    return Remembered(tmp_path)


@pytest.fixture
def transcript(tmp_path: Path) -> Iterator[Transcript]:
    transcript = Transcript.open(tmp_path / "transcript.jsonl")
    yield transcript
    transcript.close()


def allowed(memory: Memory) -> dict[str, tuple[Rule, ...]]:
    return {layer.source: layer.allow for layer in memory.layers() if layer.allow}


# --- for a project ---------------------------------------------------------------------------


def test_the_rules_of_a_project_are_kept_in_order_and_once(store: Remembered) -> None:
    assert store.projects() == {}
    store.add(A, ["bash(b *)", "bash(a *)"])
    store.add(B, ["edit"])
    store.add(A, ["bash(a *)", "bash(c *)"])
    expected = {str(A): ["bash(b *)", "bash(a *)", "bash(c *)"], str(B): ["edit"]}
    assert store.projects() == expected


def test_nobody_else_may_read_the_file(store: Remembered, tmp_path: Path) -> None:
    store.add(A, ["edit"])
    kept = [path for path in tmp_path.iterdir() if path.is_file()]
    assert {path.name for path in kept} == {"permissions.json", "permissions.lock"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}


def test_what_many_add_at_once_is_all_there(tmp_path: Path) -> None:
    def add(number: int) -> None:
        Remembered(tmp_path).add(A, [f"bash({number})"])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert set(Remembered(tmp_path).projects()[str(A)]) == {f"bash({n})" for n in range(40)}


def test_one_rule_is_forgotten_or_all_of_a_project(store: Remembered) -> None:
    store.add(A, ["edit", "bash"])
    store.add(B, ["edit"])
    assert not store.forget(A, "read")
    assert not store.forget(Path("/elsewhere"))
    assert store.forget(A, "edit")
    assert store.projects() == {str(A): ["bash"], str(B): ["edit"]}
    assert store.forget(A, "bash")
    assert store.forget(B)
    assert store.projects() == {}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"v": 2, "projects": {}}',
        '{"v": 1, "projects": []}',
        '{"v": 1, "projects": {"/work/a": "bash"}}',
        '{"v": 1, "projects": {"/work/a": [1]}}',
    ],
)
def test_a_damaged_file_allows_nothing_and_is_not_overwritten(
    store: Remembered, transcript: Transcript, tmp_path: Path, content: str
) -> None:
    file = tmp_path / "permissions.json"
    file.write_text(content)
    for touch in (store.projects, lambda: store.add(A, ["edit"]), lambda: store.forget(A)):
        with pytest.raises(SidecarError, match="nothing in it is allowed"):
            touch()
    assert allowed(Memory(transcript, [], store, A)) == {}
    assert file.read_text() == content


def test_a_file_that_cannot_be_read_allows_nothing(store: Remembered, tmp_path: Path) -> None:
    (tmp_path / "permissions.json").mkdir()
    with pytest.raises(SidecarError, match="nothing in it is allowed"):
        store.projects()


# --- for a session ---------------------------------------------------------------------------


def test_a_later_worker_of_the_session_knows_its_answers(
    store: Remembered, transcript: Transcript, tmp_path: Path
) -> None:
    memory = Memory(transcript, [], store, A)
    memory.remember(["bash(make *)"], allows=True)
    memory.remember(["edit"], allows=False)
    transcript.append("note", note="another", sync=True)
    later = Memory(transcript, read(tmp_path / "transcript.jsonl"), store, A)
    for each in (memory, later):
        assert allowed(each) == {"this session": (Rule("bash", "make *"),)}
        assert each.rejected() == (Rule("edit"),)


def test_a_project_is_asked_once_for_all_sessions_that_work_in_it(
    store: Remembered, transcript: Transcript
) -> None:
    here, elsewhere = (Memory(transcript, [], store, root) for root in (A, B))
    Memory(transcript, [], store, A).allow_in_project(["bash(make *)"])
    assert allowed(here) == {"remembered for this project": (Rule("bash", "make *"),)}
    assert allowed(elsewhere) == {}


def test_a_remembered_rule_of_another_version_allows_nothing_more(
    store: Remembered, transcript: Transcript, tmp_path: Path
) -> None:
    stored = {"v": 1, "projects": {str(A): ["teleport{home}", "edit"]}}
    (tmp_path / "permissions.json").write_text(json.dumps(stored))
    memory = Memory(transcript, [], store, A)
    assert allowed(memory) == {"remembered for this project": (Rule("edit"),)}


def test_an_answer_that_could_not_be_written_down_is_not_remembered(
    store: Remembered, transcript: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise TranscriptFull("no space left")

    memory = Memory(transcript, [], store, A)
    monkeypatch.setattr(transcript, "append", full)
    with pytest.raises(TranscriptFull):
        memory.remember(["edit"], allows=True)
    assert allowed(memory) == {}
