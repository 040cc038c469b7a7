"""Confinement while somebody swaps files and directories, always at the worst moment."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from session_worker.tools.confine import Refused, locate, open_file, open_parent
from tests.support.tool_bench import ToolBench


def snapshot(folder: Path) -> dict[str, str | None]:
    return {str(path): path.read_text() if path.is_file() else None for path in folder.rglob("*")}


def replaced_by_link(path: Path, target: Path) -> None:
    path.rename(path.with_name("old"))
    path.symlink_to(target)


SWAPS: dict[str, Callable[[Path, Path], None]] = {
    "file": lambda root, out: replaced_by_link(root / "a/b/f", out / "a/b/f"),
    "directory": lambda root, out: replaced_by_link(root / "a/b", out / "a/b"),
    "directory above": lambda root, out: replaced_by_link(root / "a", out / "a"),
    "root": lambda root, out: replaced_by_link(root, out),
    "root's parent": lambda root, out: replaced_by_link(root.parent, out),
}


@pytest.fixture
def swap_bench(tmp_path: Path) -> tuple[ToolBench, Path]:
    """A bench whose root has the same tree as a directory elsewhere."""
    (tmp_path / "home").mkdir()
    bench = ToolBench(tmp_path / "home")
    elsewhere = tmp_path.resolve() / "elsewhere"
    for folder in (bench.root, elsewhere, elsewhere / "root"):
        (folder / "a/b").mkdir(parents=True)
        (folder / "a/b/f").write_text("public" if folder == bench.root else "secret")
    return bench, elsewhere


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
@pytest.mark.parametrize("swap", SWAPS.values(), ids=SWAPS)
def test_what_is_swapped_for_a_link_before_it_is_opened_is_not_followed(
    swap_bench: tuple[ToolBench, Path], swap: Callable[[Path, Path], None], flags: int
) -> None:
    bench, elsewhere = swap_bench
    path = locate("a/b/f", bench.ctx)
    os.close(open_file(path, bench.ctx, flags))
    swap(bench.root, elsewhere)
    with pytest.raises(Refused):
        open_file(path, bench.ctx, flags)


@pytest.mark.parametrize("swap", list(SWAPS.values())[1:], ids=list(SWAPS)[1:])
@pytest.mark.parametrize("name", ["f", "new", "c/d/new"])
def test_nothing_is_made_in_a_directory_that_was_swapped_for_a_link(
    swap_bench: tuple[ToolBench, Path], swap: Callable[[Path, Path], None], name: str
) -> None:
    bench, elsewhere = swap_bench
    path = locate(f"a/b/{name}", bench.ctx)
    swap(bench.root, elsewhere)
    before = snapshot(elsewhere)
    with pytest.raises(Refused), open_parent(path, bench.ctx, make=True):
        pass
    assert snapshot(elsewhere) == before


@pytest.mark.parametrize("swap", SWAPS.values(), ids=SWAPS)
def test_a_swap_before_the_path_is_looked_at_is_seen(
    swap_bench: tuple[ToolBench, Path], swap: Callable[[Path, Path], None]
) -> None:
    bench, elsewhere = swap_bench
    swap(bench.root, elsewhere)
    with pytest.raises(Refused, match="outside the session's directories"):
        locate("a/b/f", bench.ctx)


def hook_open(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], None]) -> None:
    """Do something right before the first open of `name`: the worst moment."""
    real, pending = os.open, [act]

    def hooked(path: str, *args: int, dir_fd: int | None = None) -> int:
        if path == name and pending:
            pending.pop()()
        return real(path, *args, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", hooked)


def test_a_file_swapped_for_a_link_after_its_kind_was_checked_is_not_followed(
    swap_bench: tuple[ToolBench, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, elsewhere = swap_bench
    hook_open(monkeypatch, "f", lambda: SWAPS["file"](bench.root, elsewhere))
    with pytest.raises(Refused, match="symbolic links"):
        open_file(bench.root / "a/b/f", bench.ctx, os.O_RDONLY)


def test_a_file_swapped_for_a_pipe_after_its_kind_was_checked_does_not_block(
    swap_bench: tuple[ToolBench, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, _ = swap_bench
    file = bench.root / "a/b/f"

    def swap() -> None:
        file.unlink()
        os.mkfifo(file)

    hook_open(monkeypatch, "f", swap)
    with pytest.raises(Refused, match="not a regular file"):
        open_file(file, bench.ctx, os.O_RDONLY)


def test_a_directory_moved_out_while_it_is_walked_through_gets_no_new_file(
    swap_bench: tuple[ToolBench, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, elsewhere = swap_bench
    hook_open(monkeypatch, "b", lambda: (bench.root / "a").rename(elsewhere / "moved") and None)
    with (
        pytest.raises(Refused, match="moved or replaced"),
        open_parent(bench.root / "a/b/new", bench.ctx),
    ):
        pass


@pytest.mark.parametrize("at", ["f", "b"])
def test_a_directory_moved_out_while_it_is_walked_through_is_noticed(
    swap_bench: tuple[ToolBench, Path], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    bench, elsewhere = swap_bench
    hook_open(monkeypatch, at, lambda: (bench.root / "a").rename(elsewhere / "moved") and None)
    descriptors = len(list(Path("/dev/fd").iterdir()))
    with pytest.raises(Refused, match=r"moved or replaced|there is no"):
        open_file(bench.root / "a/b/f", bench.ctx, os.O_RDONLY)
    assert len(list(Path("/dev/fd").iterdir())) == descriptors


def test_the_place_is_compared_where_there_is_no_proc_too(
    swap_bench: tuple[ToolBench, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, elsewhere = swap_bench

    def no_proc(_path: str) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(os, "readlink", no_proc)
    os.close(open_file(bench.root / "a/b/f", bench.ctx, os.O_RDONLY))
    hook_open(monkeypatch, "f", lambda: (bench.root / "a").rename(elsewhere / "moved") and None)
    with pytest.raises(Refused, match=r"moved or replaced|there is no"):
        open_file(bench.root / "a/b/f", bench.ctx, os.O_RDONLY)
