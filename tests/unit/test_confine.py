"""Confinement: no way of writing a path, and no swap of directories, leads file tools outside."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from session_worker.tools.confine import (
    LINKS_MAX,
    NotFound,
    Refused,
    canonical,
    is_inside,
    locate,
    open_file,
    open_parent,
    shown,
)
from session_worker.tools.edit_file import EDIT_FILE
from session_worker.tools.read_file import READ_FILE
from session_worker.tools.write_file import WRITE_FILE
from tests.support.tool_bench import ToolBench

OUTSIDE = "outside the session's directories"
LOOP = "symbolic links"
NO_DIRECTORY = "Not a directory"
NO_FILE = "not a regular file"
MISSING = "there is no"
LONG = "too long"

ESCAPES = {
    "dotdot": ("../outside/secret.txt", OUTSIDE),
    "dotdot behind a directory": ("dir/../../outside/secret.txt", OUTSIDE),
    "dotdot behind a dot": ("./../outside/secret.txt", OUTSIDE),
    "dotdot around a dot": ("dir/./../../outside/secret.txt", OUTSIDE),
    "dotdot with empty components": ("..//outside///secret.txt", OUTSIDE),
    "dotdot and back in and out": ("../root/../outside/secret.txt", OUTSIDE),
    "dotdot within the other directory": ("../outside/sub/../secret.txt", OUTSIDE),
    "dotdot above the top": ("../" * 40 + "..{outside}/secret.txt", OUTSIDE),
    "dotdot alone": ("..", OUTSIDE),
    "dotdot to a directory": ("../outside", OUTSIDE),
    "dotdot to a directory, slash": ("../outside/", OUTSIDE),
    "dotdot to a new file": ("../outside/new.txt", OUTSIDE),
    "dotdot to a new directory": ("../new/new.txt", OUTSIDE),
    "dotdot behind a file": ("inside.txt/../../outside/secret.txt", NO_DIRECTORY),
    "dotdot behind what is missing": ("no/../../outside/secret.txt", MISSING),
    "dotdot behind another case": ("DIR2/../../outside/secret.txt", MISSING),
    "newline in a name": ("../outside/new\nline.txt", OUTSIDE),
    "absolute": ("{outside}/secret.txt", OUTSIDE),
    "absolute with two slashes": ("/{outside}/secret.txt", OUTSIDE),
    "absolute with three slashes": ("//{outside}/secret.txt", OUTSIDE),
    "absolute through the root": ("{root}/../outside/secret.txt", OUTSIDE),
    "absolute through a link": ("{root}/to_dir/secret.txt", OUTSIDE),
    "absolute in another case": ("{upper}/inside.txt", OUTSIDE),
    "sibling with the root's name as prefix": ("{root}-evil/secret.txt", OUTSIDE),
    "sibling, relative": ("../root-evil/secret.txt", OUTSIDE),
    "sibling, new file": ("{root}-new.txt", OUTSIDE),
    "a prefix of the root": ("{root}/../roo", OUTSIDE),
    "the top": ("/", OUTSIDE),
    "system file": ("/etc/passwd", OUTSIDE),
    "home": ("~", OUTSIDE),
    "file in the home": ("~/secret.txt", OUTSIDE),
    "home with dots": ("~/./sub/../secret.txt", OUTSIDE),
    "home of somebody": ("~nobody/secret.txt", OUTSIDE),
    "link to a file": ("to_file", OUTSIDE),
    "relative link to a file": ("rel_file", OUTSIDE),
    "link to a directory": ("to_dir/secret.txt", OUTSIDE),
    "relative link to a directory": ("rel_dir/secret.txt", OUTSIDE),
    "new file through a link": ("to_dir/new.txt", OUTSIDE),
    "new directory through a link": ("to_dir/new/new.txt", OUTSIDE),
    "link to the root's parent": ("up/outside/secret.txt", OUTSIDE),
    "link two up": ("dir/up2/outside/secret.txt", OUTSIDE),
    "link to the top": ("slash{outside}/secret.txt", OUTSIDE),
    "link with dotdot behind it, as the kernel has it": ("to_sub/../secret.txt", OUTSIDE),
    "link with dots and slashes behind it": ("to_dir/.//./secret.txt", OUTSIDE),
    "links in a chain": ("chain", OUTSIDE),
    "links in a chain of directories": ("chain_dir/secret.txt", OUTSIDE),
    "link out and link back and out": ("to_dir/back/to_file", OUTSIDE),
    "link to what does not exist": ("dangling", OUTSIDE),
    "link to a directory that does not exist": ("dangling_dir/new.txt", OUTSIDE),
    "link to a sibling": ("evil/secret.txt", OUTSIDE),
    "link that is a path with dotdot": ("winding", OUTSIDE),
    "link to itself": ("self", LOOP),
    "links in a circle": ("loop_a", LOOP),
    "links in a circle, behind one": ("loop_a/x", LOOP),
    "more links than the kernel follows": ("many", LOOP),
    "link to a file, slash": ("to_file/", NO_DIRECTORY),
    "file, slash": ("inside.txt/", NO_DIRECTORY),
    "file, slash, dot": ("inside.txt/.", NO_DIRECTORY),
    "file as a directory": ("inside.txt/new.txt", NO_DIRECTORY),
    "new directory, slash": ("new/", MISSING),
    "NUL": ("inside.txt\0/../../outside/secret.txt", "NUL"),
    "NUL at the end": ("inside.txt\0", "NUL"),
    "surrogates": ("\udc2e\udc2e/outside/secret.txt", "not valid Unicode"),
    "nothing": ("", "empty"),
    "name too long": ("x" * 300, LONG),
    "path too long": ("dir/../" * 1000 + "inside.txt", LONG),
    "directory": ("dir", NO_FILE),
    "directory, slash": ("dir/", NO_FILE),
    "root": (".", NO_FILE),
    "named pipe": ("fifo", NO_FILE),
    "link to a named pipe": ("to_fifo", NO_FILE),
    "socket": ("socket", NO_FILE),
    "device": ("/dev/null", OUTSIDE),
    "link to a device": ("null", OUTSIDE),
    "standard input": ("/dev/stdin", OUTSIDE),
}
LINUX_ESCAPES = {
    "process root": ("/proc/self/root{outside}/secret.txt", OUTSIDE),
    "thread root": ("/proc/thread-self/root{outside}/secret.txt", OUTSIDE),
    "process root, link": ("proc{outside}/secret.txt", OUTSIDE),
    "working directory": ("/proc/self/cwd/secret.txt", OUTSIDE),
    "working directory's parent": ("/proc/self/cwd/../outside/secret.txt", OUTSIDE),
    "descriptor": ("/proc/self/fd/{fd}", OUTSIDE),
    "descriptor of a device": ("/dev/fd/{fd}", OUTSIDE),
    "descriptor, link": ("to_fd", OUTSIDE),
    "environment": ("/proc/self/environ", OUTSIDE),
    "memory": ("/proc/self/mem", OUTSIDE),
}
if sys.platform == "linux":
    ESCAPES |= LINUX_ESCAPES


LINKS = {
    "to_file": "{outside}/secret.txt",
    "rel_file": "../outside/secret.txt",
    "to_dir": "{outside}",
    "rel_dir": "../outside",
    "to_sub": "{outside}/sub",
    "up": "..",
    "dir/up2": "../..",
    "slash": "/",
    "chain": "chain2",
    "chain2": "dir/../chain3",
    "chain3": "../outside/secret.txt",
    "chain_dir": "chain_dir2",
    "chain_dir2": "to_dir",
    "../outside/back": "{root}",
    "../link": "{root}",
    "dangling": "{outside}/new.txt",
    "dangling_dir": "{outside}/new",
    "evil": "../root-evil",
    "winding": "dir/../dir/../../root/../outside/./secret.txt",
    "self": "self",
    "loop_a": "loop_b",
    "loop_b": "loop_a",
    "many": "link_0",
    **{f"link_{n}": f"link_{n + 1}" for n in range(LINKS_MAX)},
    f"link_{LINKS_MAX}": "inside.txt",
    "to_fifo": "fifo",
    "null": "/dev/null",
    "proc": "/proc/self/root",
    "to_fd": "/proc/self/fd/{fd}",
}


@dataclass
class Jail:
    """A root full of ways out, and what it looks like as long as nobody takes one."""

    bench: ToolBench
    fd: int

    def __post_init__(self) -> None:
        self.before = self.snapshot()

    def filled(self, text: str) -> str:
        root = str(self.bench.root)
        names = {"root": root, "upper": root.upper(), "outside": self.bench.outside, "fd": self.fd}
        return re.sub(r"\{(\w+)\}", lambda found: str(names[found[1]]), text)

    def snapshot(self) -> dict[str, str | None]:
        return snapshot(self.bench.root.parent)


def snapshot(folder: Path) -> dict[str, str | None]:
    return {
        str(path): path.read_text() if path.is_file() and not path.is_symlink() else None
        for path in folder.rglob("*")
    }


def populated(folder: Path) -> ToolBench:
    bench = ToolBench(folder)
    for file in ("inside.txt", "dir/deep.txt"):
        bench.file(file, "public")
    for file in ("outside/secret.txt", "outside/sub/x.txt", "root-evil/secret.txt", "roo"):
        bench.file(f"../{file}", "secret")
    return bench


@pytest.fixture
def bench(tmp_path: Path) -> ToolBench:
    bench = populated(tmp_path)
    (bench.root / "to_file").symlink_to(bench.outside / "secret.txt")
    (bench.root / "to_dir").symlink_to(bench.outside)
    return bench


@pytest.fixture(scope="module")
def jail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jail]:
    """All that is outside counts as read, so that only confinement is in the way of a write."""
    bench = populated(tmp_path_factory.mktemp("jail"))
    fd = os.open(bench.outside / "secret.txt", os.O_RDONLY)
    jail = Jail(bench, fd)
    for name, target in LINKS.items():
        (bench.root / name).symlink_to(jail.filled(target))
    os.mkfifo(bench.root / "fifo")
    with contextlib.chdir(bench.root), socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    for path in bench.root.parent.rglob("*"):
        bench.ctx.seen.note(path, path.lstat())
    with contextlib.chdir(bench.outside):
        yield Jail(bench, fd)
    os.close(fd)


@pytest.mark.parametrize(("path", "reason"), ESCAPES.values(), ids=ESCAPES)
async def test_no_path_leads_outside(jail: Jail, path: str, reason: str) -> None:
    path = jail.filled(path)
    edits = [{"old_string": "secret", "new_string": "mine"}]
    for result in (
        await jail.bench.call(READ_FILE, path=path),
        await jail.bench.call(WRITE_FILE, path=path, content="mine"),
        await jail.bench.call(EDIT_FILE, path=path, edits=edits),
    ):
        assert result.is_error
        assert reason in result.content
    assert jail.snapshot() == jail.before


@pytest.mark.parametrize(
    "path",
    [
        "inside.txt",
        "./inside.txt",
        "dir/../inside.txt",
        ".//dir/.././inside.txt",
        "../root/inside.txt",
        "{root}/inside.txt",
        "/{root}//inside.txt",
        "{root}/../root/inside.txt",
        "to_dir/back/inside.txt",
        "up/root/inside.txt",
        "link_1",
        "{root}/../link/inside.txt",
    ],
)
async def test_a_detour_that_ends_inside_is_none(jail: Jail, path: str) -> None:
    result = await jail.bench.call(READ_FILE, path=jail.filled(path))
    assert (result.is_error, result.content) == (False, "     1\tpublic\n")


@pytest.mark.parametrize(
    "path",
    ["..\\outside\\x", "%2e%2e/outside/x", "\u2024\u2024/outside/x", ".../x", "file://x", "~x~/x"],
)
def test_what_only_looks_like_a_way_out_is_a_name(bench: ToolBench, path: str) -> None:
    assert locate(path, bench.ctx).is_relative_to(bench.root)


def test_a_link_is_followed_to_a_file_that_does_not_exist_yet(bench: ToolBench) -> None:
    (bench.root / "later").symlink_to("dir/new.txt")
    assert locate("later", bench.ctx) == bench.root / "dir/new.txt"


def test_a_name_is_found_however_its_accents_are_spelled(bench: ToolBench) -> None:
    apart = unicodedata.normalize("NFD", "é.txt")
    (bench.root / apart).touch()
    assert locate("é.txt", bench.ctx).samefile(bench.root / apart)
    (bench.root / "ü.txt").touch()
    assert locate(unicodedata.normalize("NFD", "ü.txt"), bench.ctx).exists()


def test_further_roots_are_as_good_as_the_first(bench: ToolBench) -> None:
    ctx = bench.also(extra_roots=(bench.outside,))
    for path in ("../outside/secret.txt", "to_file", "to_dir/new.txt", "~"):
        assert locate(path, ctx).is_relative_to(bench.outside)
    for path in ("..", "../root-evil/secret.txt", "to_dir/../new.txt"):
        with pytest.raises(Refused, match=OUTSIDE):
            locate(path, ctx)


def test_a_grant_is_for_one_path_and_not_for_what_is_near_it(bench: ToolBench) -> None:
    ctx = bench.also(granted=frozenset({bench.outside / "secret.txt", bench.outside / "sub"}))
    for path in ("to_file", "../outside/secret.txt", "../outside/sub/"):
        assert locate(path, ctx) in ctx.granted
    os.close(open_file(locate("to_file", ctx), ctx, os.O_RDONLY))
    for path in ("../outside/secret.txt2", "../outside", "../outside/sub/x.txt", "../outside/s"):
        with pytest.raises(Refused, match=OUTSIDE):
            locate(path, ctx)


def test_a_granted_path_that_has_become_a_link_is_not_granted(bench: ToolBench) -> None:
    granted = bench.outside / "secret.txt"
    ctx = bench.also(granted=frozenset({granted}))
    granted.unlink()
    granted.symlink_to(bench.outside / "sub/x.txt")
    with pytest.raises(Refused, match=OUTSIDE):
        locate("to_file", ctx)
    with pytest.raises(Refused):
        open_file(granted, ctx, os.O_RDONLY)


def test_a_path_outside_can_be_named_for_a_question_about_it(bench: ToolBench) -> None:
    assert canonical("to_dir/sub/../new.txt", bench.ctx) == bench.outside / "new.txt"


@pytest.mark.parametrize("path", ["{root}/../outside/secret.txt", "inside.txt", "{root}-evil/x"])
def test_only_canonical_paths_count_as_inside(bench: ToolBench, path: str) -> None:
    found = Path(path.format(root=bench.root))
    assert not is_inside(found, bench.ctx)
    with pytest.raises(Refused, match=OUTSIDE):
        open_file(found, bench.ctx, os.O_RDONLY)


def test_directories_are_opened_only_when_asked_for(bench: ToolBench) -> None:
    fd = open_file(bench.root, bench.ctx, os.O_RDONLY | os.O_DIRECTORY)
    assert "inside.txt" in os.listdir(fd)  # noqa: PTH208 -- of a descriptor
    os.close(fd)
    with pytest.raises(Refused, match="not a directory"):
        open_file(bench.root / "inside.txt", bench.ctx, os.O_RDONLY | os.O_DIRECTORY)
    with pytest.raises(NotFound, match="there is no missing"):
        open_file(bench.root / "missing", bench.ctx, os.O_RDONLY | os.O_DIRECTORY)


def test_the_whole_file_system_can_be_a_root(bench: ToolBench) -> None:
    ctx = bench.also(extra_roots=(Path("/"),))
    (bench.root / "null").symlink_to("/dev/null")
    os.close(open_file(locate("/", ctx), ctx, os.O_RDONLY | os.O_DIRECTORY))
    os.close(open_file(locate("to_file", ctx), ctx, os.O_RDONLY))
    with pytest.raises(Refused, match="a device, not a regular file"):
        open_file(locate("null", ctx), ctx, os.O_RDONLY)


def test_made_directories_are_as_a_command_would_make_them(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.mkdir", lambda *a, mkdir=os.mkdir, **k: mkdir(a[0], 0o700, **k))
    with open_parent(bench.root / "x/y/z", bench.ctx, make=True):
        pass
    assert (bench.root / "x/y").stat().st_mode & 0o777 == 0o755
    assert (bench.root / "x").stat().st_mode & 0o777 == 0o755


def test_a_path_in_a_message_is_one_line_of_plain_text(bench: ToolBench) -> None:
    assert shown(bench.root / "a\n[31m\x1b\udcff", bench.ctx) == "a\\n[31m\\x1b\ufffd"
    assert shown(bench.outside / "x", bench.ctx) == str(bench.outside / "x")
    assert len(shown("x" * 5000)) < 400
