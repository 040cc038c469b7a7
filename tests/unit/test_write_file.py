"""Writing a file: wholly or not at all, and never over what the model does not know."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from session_worker.tools import file_write
from session_worker.tools.file_write import CHANGE_BYTES
from session_worker.tools.read_file import READ_FILE
from session_worker.tools.spec import FileChange, ToolResult
from session_worker.tools.write_file import WRITE_FILE, WriteParams
from tests.support.tool_bench import ToolBench


@pytest.fixture
def bench(tmp_path: Path) -> ToolBench:
    return ToolBench(tmp_path)


async def write(bench: ToolBench, path: str, content: str) -> ToolResult:
    return await bench.call(WRITE_FILE, path=path, content=content)


async def known(bench: ToolBench, name: str, content: str = "old\n") -> Path:
    """A file that the model has read."""
    path = bench.file(name, content)
    assert not (await bench.call(READ_FILE, path=name)).is_error
    return path


def names(bench: ToolBench) -> list[str]:
    return sorted(str(path.relative_to(bench.root)) for path in bench.root.rglob("*"))


@pytest.mark.parametrize("content", ["", "one", "one\ntwo\n", "a\r\nb\n", "\ufeffé\0\u2028"])
async def test_a_new_file_has_exactly_the_content(bench: ToolBench, content: str) -> None:
    result = await write(bench, "a/b/new.txt", content)
    path = bench.root / "a/b/new.txt"
    assert path.read_bytes() == content.encode()
    assert not result.is_error
    assert result.meta["bytes"] == len(content.encode())
    assert names(bench) == ["a", "a/b", "a/b/new.txt"]


async def test_the_result_says_what_was_written_and_shows_the_change(bench: ToolBench) -> None:
    result = await write(bench, "f", "one\ntwo")
    path = bench.root / "f"
    assert result.content == "created f: 2 lines, 7B"
    assert result.changes == [FileChange(path, None, "one\ntwo")]
    result = await write(bench, "f", "three\n")
    assert result.content == "replaced f: 1 lines, 6B"
    assert result.changes == [FileChange(path, "one\ntwo", "three\n")]


async def test_a_file_that_was_not_read_is_kept(bench: ToolBench) -> None:
    path = bench.file("f", "theirs")
    result = await write(bench, "f", "mine")
    assert result.content == (
        "f was not changed: it exists and was not read in this session; read it first"
    )
    assert (result.is_error, path.read_text()) == (True, "theirs")


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_text("other length"),
        lambda path: (path.write_text("new\n"), os.utime(path, ns=(1, 1))),
        lambda path: path.with_name("g").replace(path),
    ],
    ids=["size", "time", "another file"],
)
async def test_a_file_that_has_changed_since_is_kept(
    bench: ToolBench, change: Callable[[Path], object]
) -> None:
    path = await known(bench, "f")
    bench.file("g", "old\n")
    change(path)
    before = path.read_text()
    result = await write(bench, "f", "mine")
    assert "it has changed since it was read; read it again" in result.content
    assert (result.is_error, path.read_text()) == (True, before)


async def test_what_the_model_wrote_it_may_write_again(bench: ToolBench) -> None:
    for content in ("1", "2", "3"):
        assert not (await write(bench, "f", content)).is_error
    assert (bench.root / "f").read_text() == "3"


def at_sync(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something when the new content is on the disk, and not yet in its place."""
    pending = [act]

    def fsync(_fd: int) -> None:
        if pending:
            pending.pop()()

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("is_known", [True, False])
async def test_what_somebody_writes_in_the_meantime_is_kept(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    path = await known(bench, "f") if is_known else bench.root / "f"
    at_sync(monkeypatch, lambda: path.write_text("theirs"))
    result = await write(bench, "f", "mine")
    assert result.is_error
    assert path.read_text() == "theirs"
    assert names(bench) == ["f"]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o664, 0o4755])
async def test_the_mode_is_kept(bench: ToolBench, mode: int) -> None:
    path = await known(bench, "f")
    path.chmod(mode)
    assert not (await write(bench, "f", "new")).is_error
    assert path.stat().st_mode & 0o7777 == mode


async def test_a_new_file_has_the_mode_that_a_command_would_give_it(bench: ToolBench) -> None:
    umask = os.umask(0o077)
    try:
        await write(bench, "new/f", "x")
    finally:
        os.umask(umask)
    assert (bench.root / "new/f").stat().st_mode & 0o777 == 0o644
    assert (bench.root / "new").stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_the_owner_is_kept(bench: ToolBench) -> None:
    path = await known(bench, "f")
    os.chown(path, 1234, 4321)
    await write(bench, "f", "new")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 4321)


async def test_a_file_that_cannot_keep_its_owner_loses_its_setuid_bit(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await known(bench, "f")
    path.chmod(0o4755)
    found = path.stat()
    real = os.fstat

    def not_permitted(*_: int) -> None:
        raise PermissionError(errno.EPERM, "not permitted")

    def of_another(fd: int) -> os.stat_result:
        seen = list(real(fd))
        if real(fd).st_ino != found.st_ino:
            seen[4] += 1
        return os.stat_result(seen)

    monkeypatch.setattr(os, "fchown", not_permitted)
    monkeypatch.setattr(os, "fstat", of_another)
    await write(bench, "f", "new")
    assert path.stat().st_mode & 0o7777 == 0o755


async def test_a_read_only_file_is_kept_even_from_root(bench: ToolBench) -> None:
    path = await known(bench, "f")
    path.chmod(0o444)
    assert "it is read-only (mode 444)" in (await write(bench, "f", "new")).content
    assert path.read_text() == "old\n"


async def test_a_link_stays_and_what_it_leads_to_is_written(bench: ToolBench) -> None:
    (bench.root / "dir").mkdir()
    (bench.root / "link").symlink_to("dir/f")
    for content in ("one", "two"):
        await write(bench, "link", content)
        assert (bench.root / "link").is_symlink()
        assert (bench.root / "dir/f").read_text() == content


@pytest.mark.parametrize("content", ["x", "longer than before"])
async def test_all_names_of_a_file_get_the_new_content(bench: ToolBench, content: str) -> None:
    path = await known(bench, "f")
    os.link(path, bench.root / "other")
    assert not (await write(bench, "f", content)).is_error
    assert (bench.root / "other").read_text() == content
    assert path.samefile(bench.root / "other")
    assert not (await write(bench, "f", content + "more")).is_error


async def test_text_that_is_no_unicode_is_refused(bench: ToolBench) -> None:
    result = await write(bench, "f", "ok \ud800")
    assert "not valid Unicode at character 3" in result.content
    assert names(bench) == []


async def test_a_large_or_binary_file_is_written_but_its_change_not_kept(
    bench: ToolBench,
) -> None:
    result = await write(bench, "f", "x" * (CHANGE_BYTES + 1))
    assert (result.is_error, list(result.changes)) == (False, [])
    assert result.meta["diff"] == "too large or not text"
    result = await write(bench, "f", "small")
    assert list(result.changes) == []
    result = await write(bench, "f", "small \0")
    assert list(result.changes) == []


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    bench: ToolBench, is_known: bool
) -> None:
    if is_known:
        await known(bench, "f")
    before = names(bench)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        result = await write(bench, "f", "x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert result.content == "f: File too large"
    assert result.is_error
    assert names(bench) == before
    if is_known:
        assert (bench.root / "f").read_text() == "old\n"


async def test_a_write_in_place_that_fails_says_that_it_was_begun(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await known(bench, "f")
    os.link(path, bench.root / "other")

    def full(_fd: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    result = await write(bench, "f", "new")
    assert "half old, half new" in result.content


async def test_a_replace_that_fails_leaves_nothing_behind(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    await known(bench, "f")
    descriptors = len(list(Path("/dev/fd").iterdir()))
    monkeypatch.setattr(os, "replace", busy)
    assert (await write(bench, "f", "new")).is_error
    assert names(bench) == ["f"]
    assert len(list(Path("/dev/fd").iterdir())) == descriptors


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not hold root back")
async def test_a_directory_that_cannot_be_written_is_an_error(bench: ToolBench) -> None:
    bench.root.chmod(0o555)
    try:
        assert "Permission denied" in (await write(bench, "f", "x")).content
    finally:
        bench.root.chmod(0o755)


async def test_a_cancelled_write_does_not_happen_later(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    writing = asyncio.create_task(write(bench, "f", "mine"))

    def cancel() -> None:
        asyncio.run_coroutine_threadsafe(cancelled(), loop).result(10)

    async def cancelled() -> None:
        writing.cancel()
        await asyncio.sleep(0)

    at_sync(monkeypatch, cancel)
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert names(bench) == []


async def test_a_write_that_is_cancelled_while_it_waits_for_a_thread_never_begins(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_write, "CANCEL_S", 0)
    loop, freed = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    loop.run_in_executor(None, freed.wait, 10)
    writing = asyncio.create_task(write(bench, "new/f", "mine"))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    freed.set()
    await loop.shutdown_default_executor()
    assert names(bench) == []


async def test_a_write_that_was_done_when_it_was_cancelled_is_reported_as_done(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    writing = asyncio.create_task(write(bench, "f", "mine"))
    real = os.replace

    async def cancelled() -> None:
        writing.cancel()

    def replace(*args: str, **kwargs: int) -> None:
        real(*args, **kwargs)
        asyncio.run_coroutine_threadsafe(cancelled(), loop).result(10)

    monkeypatch.setattr(os, "replace", replace)
    assert (await writing).content.startswith("created f")


async def test_a_cancelled_write_that_hangs_is_left_and_said_to_be_unknown(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_write, "CANCEL_S", 0)
    hung, freed = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    ended = threading.Event()
    real = os.replace

    def replace(*args: str, **kwargs: int) -> None:
        loop.call_soon_threadsafe(hung.set)
        freed.wait(10)
        real(*args, **kwargs)
        ended.set()

    monkeypatch.setattr(os, "replace", replace)
    writing = asyncio.create_task(write(bench, "f", "mine"))
    await hung.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError, match="may or may not"):
        await writing
    freed.set()
    assert ended.wait(10)


def test_a_person_sees_which_file() -> None:
    params = WriteParams(path="a\nb", content="")
    assert WRITE_FILE.render(params) == "Write a\\nb"
    assert WRITE_FILE.paths(params) == ["a\nb"]
