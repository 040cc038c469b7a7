"""What a client has open may be changed only as the model has seen it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from session_worker.tools.seen import SeenFiles

PATH = Path("/f")
UNREAD, CHANGED = "read it first", "read it again"


@pytest.fixture
def stats(tmp_path: Path) -> dict[str, os.stat_result | None]:
    for name in ("before", "after"):
        (tmp_path / name).write_text(name)
    found = {name: (tmp_path / name).stat() for name in ("before", "after")}
    return {**found, "none": None}


@pytest.mark.parametrize(
    ("seen", "now", "problem"),
    [
        # the text that the client had, what the disk had, whether that was the same
        (("a", "before", True), ("a", "before", True), None),
        (("a", "before", False), ("a", "before", False), None),
        (("a", "before", False), ("a", "after", True), None),  # saved
        (("a", "none", False), ("a", "after", True), None),
        (("a", "none", False), ("a", "none", False), None),
        (("a", "before", True), ("b", "before", False), CHANGED),  # typed
        (("a", "before", True), ("a", "after", False), CHANGED),  # a command wrote
        (("a", "before", True), ("b", "after", True), CHANGED),  # and it was loaded again
        (("a", "none", False), ("a", "after", False), CHANGED),
        ((None, "before", True), ("a", "before", True), None),  # read from the disk
        ((None, "before", True), ("a", "before", False), CHANGED),
        ((None, "before", True), ("a", "after", True), CHANGED),
        (None, ("a", "before", True), UNREAD),
    ],
)
def test_a_buffer_is_changed_only_as_it_was_seen(
    stats: dict[str, os.stat_result | None],
    seen: tuple[str | None, str, bool] | None,
    now: tuple[str, str, bool],
    problem: str | None,
) -> None:
    files = SeenFiles()
    if seen is not None:
        text, name, on_disk = seen
        found = stats[name]
        if text is not None:
            files.note_text(PATH, found, text, on_disk=on_disk)
        elif found is not None:
            files.note(PATH, found)
    text, name, on_disk = now
    said = files.problem_of_text(PATH, stats[name], text, on_disk=on_disk)
    assert (said or "").endswith(problem or "") and bool(said) is bool(problem)


def test_what_was_only_in_a_buffer_is_not_known_of_the_disk(
    stats: dict[str, os.stat_result | None],
) -> None:
    found = stats["before"]
    assert found is not None
    files = SeenFiles()
    files.note_text(PATH, found, "unsaved", on_disk=False)
    assert CHANGED in (files.problem(PATH, found) or "")
    files.note_text(PATH, found, "saved", on_disk=True)
    assert files.problem(PATH, found) is None
