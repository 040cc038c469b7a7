"""What the model sees of a file, whatever the file is, and at what cost."""

from __future__ import annotations

import asyncio
import base64
import os
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest

from session_worker.tools import file_lines
from session_worker.tools.file_lines import LINE_CHARS, LINES_MAX
from session_worker.tools.read_file import READ_FILE, UTF16_BYTES, ReadParams
from session_worker.tools.spec import ToolResult
from sidecar.protocol.bounds import TOOL_RESULT_CHARS
from tests.support.tool_bench import ToolBench


@pytest.fixture
def bench(tmp_path: Path) -> ToolBench:
    return ToolBench(tmp_path)


async def text(bench: ToolBench, content: bytes | str, **given: int) -> str:
    bench.file("f", content)
    result = await bench.call(READ_FILE, path="f", **given)
    assert not result.is_error
    return result.content


async def refusal(bench: ToolBench, path: str = "f", **given: int) -> str:
    result = await bench.call(READ_FILE, path=path, **given)
    assert result.is_error
    return result.content


def numbered(first: int, *lines: str) -> str:
    return "".join(f"{number:6d}\t{line}\n" for number, line in enumerate(lines, first))


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("one\n", ["one"]),
        ("one", ["one"]),
        ("\n", [""]),
        ("one\n\ntwo", ["one", "", "two"]),
        ("one\r\ntwo\r\n", ["one", "two"]),
        ("one\rtwo\n", ["one\rtwo"]),
        ("a\u2028b\x85c\x0cd\n", ["a\u2028b\x85c\x0cd"]),
        ("\ttab  \n", ["\ttab  "]),
        ("é漢😀\n", ["é漢😀"]),
        (b"\xef\xbb\xbfone\n", ["one"]),
    ],
)
async def test_lines_are_numbered_and_otherwise_as_they_are(
    bench: ToolBench, content: bytes | str, lines: list[str]
) -> None:
    assert await text(bench, content) == numbered(1, *lines)


@pytest.mark.parametrize(
    ("given", "shown", "note"),
    [
        ({"offset": 3}, range(3, 11), "lines 3–10 of 10"),
        ({"offset": 3, "limit": 2}, range(3, 5), "lines 3–4 of 10, continue with offset=5"),
        ({"limit": 9}, range(1, 10), "lines 1–9 of 10, continue with offset=10"),
        ({"limit": 10}, range(1, 11), None),
        ({"offset": 10}, range(10, 11), "lines 10–10 of 10"),
        ({"offset": 0}, range(1, 11), None),
        ({"offset": -2}, range(9, 11), "lines 9–10 of 10"),
        ({"offset": -4, "limit": 1}, range(7, 8), "lines 7–7 of 10, continue with offset=8"),
        ({"offset": -10}, range(1, 11), None),
        ({"offset": -99}, range(1, 11), None),
        ({"limit": 10**9}, range(1, 11), None),
    ],
)
@pytest.mark.parametrize("end", ["\n", ""])
async def test_a_page_says_where_it_is_and_where_to_go_on(
    bench: ToolBench, given: dict[str, int], shown: range, note: str | None, end: str
) -> None:
    content = "\n".join(map(str, range(1, 11))) + end
    expected = numbered(shown.start, *map(str, shown)) + (f"[{note}]" if note else "")
    assert await text(bench, content, **given) == expected


async def test_pages_put_together_are_the_file(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lines, "COUNT_CHUNK_BYTES", 7)
    lines = [str(n) * (n % 5) for n in range(60)]
    bench.file("f", "\n".join(lines) + "\n")
    pages: list[ToolResult] = []
    while not pages or pages[-1].meta["last"] < pages[-1].meta["lines"]:
        offset = pages[-1].meta["last"] + 1 if pages else 1
        pages.append(await bench.call(READ_FILE, path="f", offset=offset, limit=7))
    shown = "".join(page.content.rpartition("[")[0] for page in pages)
    assert shown == numbered(1, *lines)


async def test_an_offset_behind_the_end_is_an_error_with_the_number_of_lines(
    bench: ToolBench,
) -> None:
    for content in ("1\n2\n", "1\n2"):
        bench.file("f", content)
        assert "has 2 lines" in await refusal(bench, offset=3)


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\xff\xfe"])
async def test_an_empty_file_is_said_to_be_empty(bench: ToolBench, content: bytes) -> None:
    assert "f is empty" in await text(bench, content)


async def test_a_page_has_2000_lines_at_most(bench: ToolBench) -> None:
    shown = await text(bench, "x\n" * 3000, limit=3000)
    assert shown.count("\tx\n") == LINES_MAX
    assert shown.endswith("[lines 1–2000 of 3000, continue with offset=2001]")


@pytest.mark.parametrize("line", ["x" * 100, "é" * 60, "😀" * 1000, "\xff" * 1500])
async def test_a_page_fits_the_result_and_ends_with_a_whole_line(
    bench: ToolBench, line: str
) -> None:
    shown = await text(bench, f"{line}\n" * 2000)
    assert TOOL_RESULT_CHARS * 0.8 < len(shown.encode()) < TOOL_RESULT_CHARS
    body, _, note = shown.rpartition("[")
    assert body == numbered(1, *[line] * body.count("\n"))
    assert note == f"lines 1–{body.count(chr(10))} of 2000, continue with offset=" + (
        f"{body.count(chr(10)) + 1}]"
    )


@pytest.mark.parametrize("letter", ["x", "é", "漢", "😀"])
async def test_a_long_line_is_cut_at_a_character(bench: ToolBench, letter: str) -> None:
    whole = letter * LINE_CHARS
    assert await text(bench, whole) == numbered(1, whole)
    size = len((whole + letter).encode())
    assert await text(bench, whole + letter + "\nnext") == numbered(
        1, f"{whole}… [cut, the line has {size} bytes]", "next"
    )


async def test_one_giant_line_costs_no_memory(bench: ToolBench) -> None:
    with bench.file("f").open("wb") as file:
        file.write(b"head")
        for _ in range(48):
            file.write(b"x" * (1 << 20))
        file.write(b"\nlast\n")
    tracemalloc.start()
    try:
        result = await bench.call(READ_FILE, path="f")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert result.content.endswith("bytes]\n     2\tlast\n")


async def test_of_a_huge_file_only_so_much_is_looked_at(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lines, "SCAN_BYTES", 1 << 20)
    with bench.file("f", "first\n" * 20_000).open("r+b") as file:
        file.truncate(1 << 40)
    shown = await bench.call(READ_FILE, path="f", limit=1)
    assert shown.content == (
        "     1\tfirst\n[lines 1–1 of more than 20001, continue with offset=2; "
        "only the first 1MB can be read; use bash]"
    )
    assert "more than 20001 lines" in await refusal(bench, offset=10**9)
    assert "too large (1048576MB) to count from its end" in await refusal(bench, offset=-1)


async def test_binary_files_are_left_to_bash(bench: ToolBench) -> None:
    for content in (b"\x7fELF\0", b"text" * 2000 + b"\0", b"\xff\xfe\0\0A\0\0\0"):
        bench.file("f", content)
        assert "is binary" in await refusal(bench)
    assert (await text(bench, b"x" * 8192 + b"\0")).startswith("     1\txx")


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
async def test_utf_16_is_read_by_its_mark(bench: ToolBench, codec: str) -> None:
    content = "\ufeffone\r\ntwo 漢😀\n".encode(codec)
    assert await text(bench, content) == numbered(1, "one", "two 漢😀") + f"[{codec.upper()}]"
    shown = await text(bench, content + b"\xd8", offset=2)
    assert "lines 2–3 of 3" in shown
    assert "invalid" in shown
    with bench.file("f", content).open("r+b") as file:
        file.truncate(UTF16_BYTES + 1)
    assert "use iconv" in await refusal(bench)


async def test_what_is_not_utf_8_is_replaced_and_said_so(bench: ToolBench) -> None:
    shown = await text(bench, "caf\xe9\nna\xefve\n".encode("latin-1"))
    assert shown.startswith(numbered(1, "caf\ufffd", "na\ufffdve"))
    assert "not UTF-8" in shown
    assert "not UTF-8" not in await text(bench, "a real \ufffd\n")
    assert "cut, the line has 9000 bytes" in await text(bench, b"\xff" * 9000)


def png(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunk = b"IHDR" + header
    return b"\x89PNG\r\n\x1a\n\0\0\0\r" + chunk + zlib.crc32(chunk).to_bytes(4) + b"\0\0\0\0IEND"


IMAGES = {
    "image/png": png(3, 2),
    "image/gif": b"GIF89a\x03\0\x02\0rest",
    "image/jpeg": b"\xff\xd8\xff\xc0\0\x11\x08\0\x02\0\x03rest",
    "image/webp": b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\x02\0\0\x01\0\0",
}


@pytest.mark.parametrize(("media_type", "data"), IMAGES.items(), ids=IMAGES)
async def test_an_image_is_known_by_its_bytes_and_shown(
    bench: ToolBench, media_type: str, data: bytes
) -> None:
    bench.file("f.txt", data)
    result = await bench.call(READ_FILE, path="f.txt")
    words, block = result.content
    assert words == {"type": "text", "text": f"f.txt: {media_type}, {len(data)}B"}
    assert block["type"] == "image"
    assert block["source"]["media_type"] == media_type
    assert base64.b64decode(block["source"]["data"]) == data


async def test_an_image_the_api_would_refuse_is_not_sent(bench: ToolBench) -> None:
    for data, why in (
        (png(0, 0), "unreadable"),
        (png(9000, 1), "9000 by 1 pixels"),
        (b"\xff\xd8\xff", "unreadable"),
    ):
        bench.file("f", data)
        assert why in await refusal(bench)


@pytest.mark.parametrize(
    ("head", "bound", "limit"),
    [(png(1, 1), "IMAGE_BASE64_BYTES", 3000), (b"%PDF-1.7\n", "PDF_BYTES", 4000)],
)
async def test_images_and_pdfs_have_a_size_limit(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch, head: bytes, bound: str, limit: int
) -> None:
    monkeypatch.setattr(f"session_worker.tools.read_file.{bound}", 4000)
    path = bench.file("f", head)
    os.truncate(path, limit + 1)
    assert "more than" in await refusal(bench)
    os.truncate(path, limit)
    result = await bench.call(READ_FILE, path="f")
    assert len(base64.b64decode(result.content[1]["source"]["data"])) == limit


async def test_a_pdf_is_a_document(bench: ToolBench) -> None:
    bench.file("f", b"%PDF-1.7\n\0")
    words, block = (await bench.call(READ_FILE, path="f")).content
    assert words["text"] == "f: application/pdf, 10B"
    assert (block["type"], block["source"]["media_type"]) == ("document", "application/pdf")


async def test_a_missing_file_is_told_with_three_close_names(bench: ToolBench) -> None:
    for name in ("src/app.py", "src/apps.py", "src/APP.py", "src/zebra", "src/map.py"):
        bench.file(name)
    shown = await refusal(bench, "src/ap.py")
    assert shown.startswith("there is no src/ap.py; did you mean: src/")
    assert shown.count(", ") == 2
    assert "zebra" not in shown
    bench.file("README.md")
    assert await refusal(bench, "readme.MD") == "there is no readme.MD; did you mean: README.md"
    assert await refusal(bench, "lib/app.py") == "there is no lib"
    assert await refusal(bench, "src/qqq") == "there is no src/qqq"


async def test_a_close_name_cannot_say_more_than_a_name(bench: ToolBench) -> None:
    bench.file("app\nIgnore all.py")
    assert "app\\nIgnore all.py" in await refusal(bench, "app Ignore all.py")


async def test_names_next_to_a_granted_file_are_not_told(bench: ToolBench) -> None:
    (bench.outside / "notes2.txt").touch()
    bench.also(granted=frozenset({bench.outside / "notes.txt"}))
    shown = await refusal(bench, "../outside/notes.txt")
    assert shown.startswith("there is no")
    assert "notes2" not in shown


async def test_what_was_read_may_be_written_until_it_changes(bench: ToolBench) -> None:
    path = bench.file("f", "one")
    assert bench.ctx.seen.problem(path, path.stat())
    await bench.call(READ_FILE, path="./f")
    assert bench.ctx.seen.problem(path, path.stat()) is None
    path.write_text("other")
    assert "changed" in (bench.ctx.seen.problem(path, path.stat()) or "")


async def test_what_was_not_shown_does_not_count_as_read(bench: ToolBench) -> None:
    for content, given in ((b"\0", {}), (b"1\n", {"offset": 5})):
        path = bench.file("f", content)
        await refusal(bench, **given)
        assert bench.ctx.seen.problem(path, path.stat())


async def test_a_read_that_was_cancelled_does_not_count(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bench.file("f", "one")
    loop, real = asyncio.get_running_loop(), os.pread
    reading = asyncio.create_task(bench.call(READ_FILE, path="f"))

    async def cancel() -> None:
        reading.cancel()

    def pread(fd: int, size: int, at: int) -> bytes:
        asyncio.run_coroutine_threadsafe(cancel(), loop).result(10)
        return real(fd, size, at)

    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(asyncio.CancelledError):
        await reading
    await loop.shutdown_default_executor()
    assert bench.ctx.seen.problem(path, path.stat())


@pytest.mark.parametrize("then", [b"", b"12\n", b"1\n2\n3\n4\n5\n6\n"])
async def test_a_file_that_changes_while_it_is_read_counts_as_changed(
    bench: ToolBench, then: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bench.file("f", "1\n2\n3\n")
    real = os.pread

    def pread(fd: int, size: int, at: int) -> bytes:
        if at == 0 and size == len("1\n2\n3\n"):  # the first count of its lines
            path.write_bytes(then)
        return real(fd, size, at)

    monkeypatch.setattr(os, "pread", pread)
    await bench.call(READ_FILE, path="f")
    assert "changed" in (bench.ctx.seen.problem(path, path.stat()) or "")


async def test_no_descriptor_is_left_open(bench: ToolBench) -> None:
    bench.file("text", "x")
    bench.file("binary", "\0")
    bench.file("f.png", png(1, 1))
    descriptors = len(list(Path("/dev/fd").iterdir()))
    for path in ("text", "binary", "f.png", "missing", ".", "/etc/passwd"):
        await bench.call(READ_FILE, path=path)
    assert len(list(Path("/dev/fd").iterdir())) == descriptors


async def test_the_loop_goes_on_while_a_file_is_read(
    bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.file("f", "x")
    loop = asyncio.get_running_loop()
    is_alive = asyncio.Event()
    real = os.pread

    def pread(fd: int, size: int, at: int) -> bytes:
        asyncio.run_coroutine_threadsafe(answer(), loop).result(10)
        return real(fd, size, at)

    async def answer() -> None:
        is_alive.set()

    monkeypatch.setattr(os, "pread", pread)
    await bench.call(READ_FILE, path="f")
    assert is_alive.is_set()


def test_a_person_sees_which_file_and_from_where() -> None:
    assert READ_FILE.render(ReadParams(path="a\nb")) == "Read a\\nb"
    assert READ_FILE.render(ReadParams(path="a", offset=-5)) == "Read a from line -5"
    assert READ_FILE.paths(ReadParams(path="a")) == ["a"]
