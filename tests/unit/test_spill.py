"""The directory of what is too long for the model: bounded, and nothing under way is lost."""

from __future__ import annotations

import dataclasses
import itertools
import os
import subprocess
from pathlib import Path

import pytest

from session_worker.tools import spill
from session_worker.tools.spec import Shell, ToolContext
from session_worker.tools.spill import create_file

_seconds = itertools.count()


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    return ToolContext("call", tmp_path, Shell(tmp_path), {}, tmp_path / "spill", lambda _: None)


def spilled(ctx: ToolContext, size: int) -> Path:
    """A file that nobody writes to any more, older than any made now."""
    second = next(_seconds)
    fd, path = create_file(dataclasses.replace(ctx, call_id=f"call_{second}"), ".txt")
    os.truncate(fd, size)
    os.close(fd)
    os.utime(path, (second, second))
    return path


def test_the_oldest_files_make_room_for_a_new_one(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "SPILL_BYTES", 250)
    old, middle, new = [spilled(ctx, 100) for _ in range(3)]
    newest = spilled(ctx, 100)
    assert not old.exists()
    assert middle.exists() and new.exists() and newest.exists()


def test_there_are_never_more_files_than_the_bound(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "SPILL_FILES", 3)
    made = [spilled(ctx, 0) for _ in range(5)]
    assert [path.exists() for path in made[:2]] == [False, False]
    assert len(list(ctx.spill_dir.iterdir())) == 3


def test_what_is_written_to_stays_until_its_last_writer_has_ended(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "SPILL_FILES", 1)
    fd, output = create_file(ctx, ".out")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=fd) as command:
        os.close(fd)
        spilled(ctx, 0)
        assert output.exists(), "the command has it, though we do not"
        assert command.stdin is not None
        command.stdin.close()
        command.wait()
    spilled(ctx, 0)
    assert not output.exists()


def test_what_commands_have_put_there_does_no_harm(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "SPILL_FILES", 1)
    spilled(ctx, 0)
    outside = ctx.root / "outside"
    outside.write_text("text")
    (ctx.spill_dir / "tmp").mkdir()
    (ctx.spill_dir / "tmp" / "file").touch()
    (ctx.spill_dir / "link").symlink_to(outside)
    os.mkfifo(ctx.spill_dir / "pipe")
    assert spilled(ctx, 0).exists()
    assert outside.read_text() == "text"
    assert (ctx.spill_dir / "tmp" / "file").exists()
