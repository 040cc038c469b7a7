"""The list_dir tool: what is there, in the order of names, and never more than a page."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from session_worker.tools import list_dir
from session_worker.tools.confine import Refused
from session_worker.tools.list_dir import LIST_DIR
from session_worker.tools.spec import ToolContext
from tests.support.tool_bench import ToolBench


@pytest.fixture
def bench(tmp_path: Path) -> ToolBench:
    bench = ToolBench(tmp_path)
    bench.file("b/deep/far/away.txt", "xx")
    bench.file("a.txt", "x" * 2048)
    bench.file("b.txt")
    bench.file("node_modules/m/i.js")
    return bench


async def test_one_level_is_listed_in_the_order_of_names(bench: ToolBench) -> None:
    result = await bench.call(LIST_DIR)
    assert result.content == "a.txt  2KB\nb/\nb.txt  0B\nnode_modules/\n[entries: 4]"


async def test_deeper_levels_are_listed_under_their_directory_but_not_what_is_pruned(
    bench: ToolBench,
) -> None:
    result = await bench.call(LIST_DIR, depth=3)
    lines = ["a.txt  2KB", "b/", "b/deep/", "b/deep/far/", "b.txt  0B", "node_modules/"]
    assert result.content == "\n".join([*lines, "[entries: 6]"])


async def test_a_pruned_directory_is_listed_by_name(bench: ToolBench) -> None:
    result = await bench.call(LIST_DIR, path="node_modules", depth=2)
    assert result.content == "m/\nm/i.js  0B\n[entries: 2]"


async def test_links_are_shown_with_where_they_lead_and_not_followed(bench: ToolBench) -> None:
    (bench.outside / "secret.txt").touch()
    (bench.root / "b/up").symlink_to("..")
    (bench.root / "b/gone").symlink_to("no\nwhere")
    (bench.root / "b/out").symlink_to(bench.outside)
    result = await bench.call(LIST_DIR, path="b", depth=3)
    assert str(result.content).split("\n") == [
        "deep/",
        "deep/far/",
        "deep/far/away.txt  2B",
        "gone -> no\\nwhere",
        f"out -> {bench.outside}  (outside the session's directories)",
        "up -> ..",
        "[entries: 6]",
    ]


async def test_pipes_sockets_and_odd_names_are_listed_without_being_opened(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = bench.root / "odd"
    odd.mkdir()
    os.mkfifo(odd / "pipe\n")
    monkeypatch.chdir(odd)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
        result = await bench.call(LIST_DIR, path="odd")
    assert result.content == "pipe\\n  (pipe)\nsock  (socket)\n[entries: 2]"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("a.txt", "a file, not a directory"),
        ("nowhere", "there is no nowhere"),
        ("..", "outside the session's directories"),
        ("/etc", "outside the session's directories"),
    ],
)
async def test_what_cannot_be_listed_is_told(bench: ToolBench, path: str, problem: str) -> None:
    result = await bench.call(LIST_DIR, path=path)
    assert result.is_error and problem in str(result.content)


async def test_a_directory_that_was_granted_is_listed_with_all_below(bench: ToolBench) -> None:
    (bench.outside / "d").mkdir()
    (bench.outside / "d/f").touch()
    bench.also(granted=frozenset({bench.outside}))
    result = await bench.call(LIST_DIR, path=str(bench.outside), depth=2)
    assert result.content == "d/\nd/f  0B\n[entries: 2]"


async def test_a_full_list_has_the_upper_levels_and_says_what_is_missing(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        bench.file(f"b/{n}")
    monkeypatch.setattr(list_dir, "LIST_ENTRIES", 6)
    result = await bench.call(LIST_DIR, depth=3)
    lines = ["a.txt  2KB", "b/", "b/0  0B", "b/1  0B", "b.txt  0B", "node_modules/"]
    assert result.content == "\n".join([*lines, "[entries: 6 of 10]"])
    monkeypatch.setattr(list_dir, "LIST_ENTRIES", 2)
    result = await bench.call(LIST_DIR, depth=3)
    assert result.content == "a.txt  2KB\nb/\n[entries: 2 of 4; directories not looked into: 1]"


async def test_a_directory_that_cannot_be_read_is_noted_and_the_rest_is_listed(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path, ctx: ToolContext, flags: int) -> int:
        if path.name == "b":
            raise Refused("Permission denied")
        return opened(path, ctx, flags)

    opened = list_dir.open_file
    monkeypatch.setattr(list_dir, "open_file", broken)
    result = await bench.call(LIST_DIR, depth=2)
    lines = ["a.txt  2KB", "b/  (cannot be read: Permission denied)", "b.txt  0B", "node_modules/"]
    assert result.content == "\n".join([*lines, "[entries: 4]"])


async def test_a_cancelled_list_ends_its_walk(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread waits in the first directory for the cancellation, and then opens no other."""
    loop = asyncio.get_running_loop()
    cancelled, opened, ended = asyncio.Event(), list[Path](), asyncio.Event()

    def slow(path: Path, ctx: ToolContext, flags: int) -> int:
        opened.append(path)
        loop.call_soon_threadsafe(call.cancel)
        asyncio.run_coroutine_threadsafe(cancelled.wait(), loop).result()
        return real(path, ctx, flags)

    def listing(*given: object) -> object:
        try:
            return walk(*given)
        finally:
            loop.call_soon_threadsafe(ended.set)

    real, walk = list_dir.open_file, list_dir._listing
    monkeypatch.setattr(list_dir, "open_file", slow)
    monkeypatch.setattr(list_dir, "_listing", listing)
    call = asyncio.ensure_future(bench.call(LIST_DIR, depth=3))
    await asyncio.wait([call])
    cancelled.set()
    await ended.wait()
    assert call.cancelled() and opened == [bench.root]
