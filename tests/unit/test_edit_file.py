"""Edits: exactly what was asked for changes, and every other byte stays."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session_worker.tools.confine import Refused
from session_worker.tools.edit_file import EDIT_FILE, EditParams
from session_worker.tools.edit_text import EDIT_BYTES, Edit, apply
from session_worker.tools.file_text import decode
from session_worker.tools.read_file import READ_FILE
from session_worker.tools.spec import FileChange, ToolResult
from tests.support.tool_bench import ToolBench


@pytest.fixture
def bench(tmp_path: Path) -> ToolBench:
    return ToolBench(tmp_path)


def one(old: str, new: str, *, every: bool = False) -> Edit:
    return Edit(old_string=old, new_string=new, replace_all=every)


async def edit(bench: ToolBench, content: bytes, *edits: Edit) -> ToolResult:
    """Edit a file that the model has read."""
    bench.file("f", content)
    await bench.call(READ_FILE, path="f")
    return await bench.call(EDIT_FILE, path="f", edits=[edit.model_dump() for edit in edits])


def refused(text: str, *edits: Edit) -> str:
    with pytest.raises(Refused) as refusal:
        apply(text, edits)
    assert str(refusal.value).startswith("nothing was changed: ")
    return str(refusal.value).removeprefix("nothing was changed: ")


BYTES = {
    "LF": (b"a\nb\nc\n", "b", "x\ny", b"a\nx\ny\nc\n"),
    "CRLF": (b"a\r\nb\r\nc\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\nc\r\n"),
    "CRLF, over lines": (b"a\r\nb\r\nc\r\n", "a\nb\n", "x\n", b"x\r\nc\r\n"),
    "CRLF, written by the model": (b"a\r\nb\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\n"),
    "LF, CRLF written by the model": (b"a\nb\n", "a\r\nb", "x\r\ny", b"x\ny\n"),
    "CRLF, line removed": (b"a\r\nb\r\nc\r\n", "b\n", "", b"a\r\nc\r\n"),
    "CRLF, line inserted": (b"a\r\nb\r\n", "b", "x\nb", b"a\r\nx\r\nb\r\n"),
    "CRLF, lines joined": (b"a\r\nb\r\n", "a\nb", "ab", b"ab\r\n"),
    "CRLF, only a line end": (b"a\r\nb", "a\n", "a\n\n", b"a\r\n\r\nb"),
    "CRLF, last line without end": (b"a\r\nb", "b", "b\nc", b"a\r\nb\r\nc"),
    "mixed, in the LF part": (b"a\r\nb\nc\n", "b", "x\ny", b"a\r\nx\ny\nc\n"),
    "mixed, in the CRLF part": (b"a\nb\r\nc\n", "b", "x\ny", b"a\nx\r\ny\r\nc\n"),
    "mixed, common lines": (b"a\r\nb\nc\r\n", "a\nb\nc", "a\nB\nc", b"a\r\nB\nc\r\n"),
    "mixed, each line its own": (b"a\r\nb\nc\r\n", "a\nb\nc\n", "1\n2\n3\n", b"1\r\n2\n3\r\n"),
    "mixed, more lines than before": (b"a\r\nb\n", "a\nb", "1\n2\n3", b"1\r\n2\n3\n"),
    "mixed, line inserted": (b"a\r\nb\nc\r\n", "a\nb\nc", "a\nx\nb\nc", b"a\r\nx\r\nb\nc\r\n"),
    "no line end at all": (b"ab", "b", "x\ny", b"ax\ny"),
    "final newline missing": (b"a\nb", "a", "x", b"x\nb"),
    "final newline removed": (b"a\nb\n", "b\n", "b", b"a\nb"),
    "lone CR": (b"a\rb\nc\n", "b", "x", b"a\rx\nc\n"),
    "CR before CRLF": (b"a\r\r\nb\r\n", "b", "x\ny", b"a\r\r\nx\r\ny\r\n"),
    "UTF-8 mark": (b"\xef\xbb\xbfa\n", "a", "x", b"\xef\xbb\xbfx\n"),
    "UTF-16": ("\ufeffé\r\nb".encode("utf-16-le"), "é", "漢\nx", "\ufeff漢\r\nx\r\nb"),
    "UTF-16, big end first": ("\ufeffa\n".encode("utf-16-be"), "a", "😀", "\ufeff😀\n"),
    "Latin-1": (b"caf\xe9\r\nb\r\n", "b", "x", b"caf\xe9\r\nx\r\n"),
    "Latin-1 within the line": (b"caf\xe9 b \xff\n", " b ", " x ", b"caf\xe9 x \xff\n"),
    "half a character": (b"\xe6\xbc b\xf0\x9f\n", "b", "x", b"\xe6\xbc x\xf0\x9f\n"),
    "mostly UTF-8": ("é\n".encode() + b"\xff\n", "é", "漢", "漢\n".encode() + b"\xff\n"),
    "NFD stays": ("e\u0301 a".encode(), "a", "é", "e\u0301 é".encode()),
    "line separators are letters": ("a\u2028\x85b".encode(), "b", "c", "a\u2028\x85c".encode()),
}


@pytest.mark.parametrize(("before", "old", "new", "after"), BYTES.values(), ids=BYTES)
async def test_only_the_bytes_of_the_edit_change(
    bench: ToolBench, before: bytes, old: str, new: str, after: bytes | str
) -> None:
    if isinstance(after, str):
        codec = decode(before).codec
        after = after.encode(codec)
    result = await edit(bench, before, one(old, new))
    assert not result.is_error
    assert (bench.root / "f").read_bytes() == after


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from([b"\r\n", b"\n", b"\r", b"a", b"\xe9", b"\xc3\xa9", b"\xf0"])),
    st.lists(st.sampled_from([b"\r\n", b"\n", b"\r", b"b", b"\xe9", b"\xc3\xa9", b"\xf0"])),
    st.sampled_from(["", "one", "one\ntwo", "é"]),
)
def test_what_is_around_an_edit_is_kept_whatever_it_is(
    before: list[bytes], after: list[bytes], new: str
) -> None:
    head, tail = b"".join(before), b"".join(after)
    file = decode(head + b"MARK" + tail)
    done = file.encode(apply(file.text, [one("MARK", new)]).text)
    assert done.startswith(head)
    assert done.endswith(tail)
    assert done[len(head) : len(done) - len(tail)].decode().split() == new.split()


async def test_edits_apply_in_order_each_to_the_result_of_the_one_before(
    bench: ToolBench,
) -> None:
    result = await edit(bench, b"a\nb\n", one("a", "b1"), one("b1", "c"), one("c\nb", "d"))
    assert (bench.root / "f").read_bytes() == b"d\n"
    assert result.content == "edited f: 3 replacements at lines 1, 1, 1"
    assert result.changes == [FileChange(bench.root / "f", "a\nb\n", "d\n")]


async def test_if_one_edit_fails_none_is_made(bench: ToolBench) -> None:
    result = await edit(bench, b"a\nb\n", one("a", "x"), one("zzz", "y"), one("b", "z"))
    assert result.content == "nothing was changed: edit 2 of 3: old_string was not found"
    assert result.is_error
    assert (bench.root / "f").read_bytes() == b"a\nb\n"


def test_all_matches_are_replaced_when_asked_for() -> None:
    done = apply("a a\r\na\n", [one("a", "b\nb", every=True)])
    assert done.text == "b\r\nb b\r\nb\r\nb\nb\n"
    assert done.lines == [1, 1, 2]
    assert apply("aaaaa", [one("aa", "b", every=True)]).text == "bba"


def test_several_matches_are_an_error_with_their_lines() -> None:
    assert refused("x\ny\nx\n", one("x", "z")).startswith("2 matches at lines 1, 3; ")
    assert "15 matches at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …;" in refused(
        "x\n" * 15, one("x", "z")
    )
    assert "2 matches" in refused("aaa", one("aa", "b"))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("", "x", "old_string is empty"),
        ("a", "a", "are the same"),
        ("a\n", "a\r\n", "are the same"),
        ("\udce9", "x", "old_string is not valid Unicode at character 0"),
        ("a", "x\ud800", "new_string is not valid Unicode at character 1"),
    ],
)
def test_edits_that_cannot_be_meant_are_refused(old: str, new: str, why: str) -> None:
    assert why in refused(decode(b"a\n\xe9").text, one(old, new))


HINTS = {
    "indent": ("def f():\n\treturn 1\n", "def f():\n    return 1", "lines 1–2 differ only in"),
    "one line": ("a\nx  = 1\nb\n", "x = 1", "line 2 differs only in whitespace:\nx  = 1"),
    "line break": ("a\nlong\nline\nb\n", "long line", "lines 2–3 differ only in whitespace"),
    "quotes": ("say “hi”\n", 'say "hi"', "whitespace and characters that look alike:\nsay “hi”"),
    "dashes": ("1\u20132\n", "1-2", "look alike"),
    "accents": ("cafe\u0301\n", "caf\u00e9", "look alike"),
    "wide": ("x\u00a0y\uff01\n", "x y!", "look alike"),
    "close": ("a = 1\nvalue = compute(x)\n", "value = compute(y)\nb", "     2\tvalue = compute(x)"),
    "numbers": ("def f():\n    pass\n", "     1\tdef f():\n     2\t    pass\n", "line numbers"),
    "replaced": ("caf\udce9\n", "caf\ufffd", "leave them out"),
}


@pytest.mark.parametrize(("text", "old", "words"), HINTS.values(), ids=HINTS)
def test_what_was_not_found_comes_with_what_may_have_been_meant(
    text: str, old: str, words: str
) -> None:
    shown = refused(text, one(old, "new"))
    assert shown.startswith("old_string was not found; ")
    assert words in shown
    shown.encode()


def test_a_text_like_nothing_in_the_file_gets_no_hint() -> None:
    for old in ("qqqqqq", "\n\n\n", "   "):
        assert refused("a\nb", one(old, "x")) == "old_string was not found"


def test_a_hint_stays_short_whatever_the_file_is_like() -> None:
    lines = "".join(f"line {n} {'abcdefgh' * 12}\n" for n in range(2_000))
    assert len(refused(lines, one("line x " + "abcdefhg" * 12, "new"))) < 1000
    giant = "x" * 200_000 + " y"
    assert len(refused(giant, one(giant.replace(" ", "  "), "new"))) < 2000
    assert len(refused(giant, one(giant + "z", "new"))) < 1000


def test_edits_cannot_grow_a_file_without_end() -> None:
    edits = one("a", "b" * 200_000, every=True), one("b" * 9, "c" * 99, every=True)
    assert "edit 2 of 2: the file would have more than 1MB" in refused("aaa", *edits)


async def test_a_file_that_was_not_read_or_has_changed_is_kept(bench: ToolBench) -> None:
    path = bench.file("f", "a")
    edits = [{"old_string": "a", "new_string": "b"}]
    result = await bench.call(EDIT_FILE, path="f", edits=edits)
    assert "was not read in this session; read it first" in result.content
    await bench.call(READ_FILE, path="f")
    path.write_text("a changed")
    result = await bench.call(EDIT_FILE, path="f", edits=edits)
    assert "has changed since it was read" in result.content
    assert (result.is_error, path.read_text()) == (True, "a changed")


async def test_what_the_model_edited_it_may_edit_again(bench: ToolBench) -> None:
    await edit(bench, b"a", one("a", "b"))
    for old, new in ("bc", "cd"):
        edits = [{"old_string": old, "new_string": new}]
        assert not (await bench.call(EDIT_FILE, path="f", edits=edits)).is_error
    assert (bench.root / "f").read_text() == "d"


async def test_mode_and_further_names_of_a_file_are_kept(bench: ToolBench) -> None:
    bench.file("f", "a").chmod(0o751)
    await edit(bench, b"a", one("a", "b"))
    assert (bench.root / "f").stat().st_mode & 0o777 == 0o751
    os.link(bench.root / "f", bench.root / "g")
    await edit(bench, b"a", one("a", "c"))
    assert (bench.root / "g").read_text() == "c"


async def test_a_name_with_accents_taken_apart_is_edited_and_not_copied(
    bench: ToolBench,
) -> None:
    bench.file(unicodedata.normalize("NFD", "café.txt"), "a")
    await bench.call(READ_FILE, path="café.txt")
    edits = [{"old_string": "a", "new_string": "b"}]
    assert not (await bench.call(EDIT_FILE, path="café.txt", edits=edits)).is_error
    assert [path.read_text() for path in bench.root.iterdir()] == ["b"]


@pytest.mark.parametrize(
    ("content", "new", "why"),
    [
        (b"a\0", "b", "is binary"),
        ("\ufeffa".encode("utf-16-le") + b"\0", "b", "not valid utf-16-le"),
        (b"caf\xe9 a", "é", "is not UTF-8, but new_string would be"),
        (b"a" + b"x" * EDIT_BYTES, "b", "more than 1MB"),
    ],
)
async def test_files_that_an_edit_would_spoil_are_left_to_bash(
    bench: ToolBench, content: bytes, new: str, why: str
) -> None:
    path = bench.file("f", content)
    bench.ctx.seen.note(path, path.stat())
    edits: list[dict[str, Any]] = [{"old_string": "a", "new_string": new}]
    result = await bench.call(EDIT_FILE, path="f", edits=edits)
    assert why in result.content
    assert "use bash" in result.content
    assert (result.is_error, path.read_bytes()) == (True, content)


async def test_a_missing_file_is_told_with_the_tool_that_makes_one(bench: ToolBench) -> None:
    edits = [{"old_string": "a", "new_string": "b"}]
    result = await bench.call(EDIT_FILE, path="no", edits=edits)
    assert result.content == "there is no no; write_file makes new files"


def test_a_person_sees_which_file() -> None:
    params = EditParams(path="a\nb", edits=[one("a", "b")])
    assert EDIT_FILE.render(params) == "Edit a\\nb"
    assert EDIT_FILE.paths(params) == ["a\nb"]
