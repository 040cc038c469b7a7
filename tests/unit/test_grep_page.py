"""Pages of what a search prints: bounded in rows, bytes and memory, whatever comes."""

from __future__ import annotations

import io
import tracemalloc

from session_worker.tools.grep_page import GREP_LINE_CHARS, GREP_PAGE_BYTES, Page
from session_worker.tools.search_child import _shown


def page_of(stream: bytes, limit: int = 100, context: int = 0) -> Page:
    page = Page(limit, 0, context)
    page.fill(io.BytesIO(stream), lambda path: path.decode())
    return page


def test_a_page_ends_at_its_bytes_and_says_that_there_is_more() -> None:
    line = b"f\x00%d:" + b"x" * GREP_LINE_CHARS + b"\n"
    page = page_of(b"".join(line % n for n in range(1, 1_000)), limit=1_000)
    assert page.more and sum(len(row) + 1 for row in page.rows) <= GREP_PAGE_BYTES
    assert page.shown == len(page.rows) > 90


def test_a_line_of_any_length_costs_no_memory() -> None:
    stream = io.BytesIO(b"f\x001:" + b"x" * 8_000_000 + b"\nf\x002:y\n")
    page = Page(100, 0)
    tracemalloc.start()
    try:
        page.fill(stream, lambda path: path.decode())
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert page.rows == [f"f:1:{'x' * GREP_LINE_CHARS}…", "f:2:y"]


def test_ripgreps_word_about_a_binary_file_is_not_a_path() -> None:
    page = page_of(b'a\x001:x\na: WARNING: stopped searching (found "\\0")\nb\nc\x002:y\n')
    assert page.rows == ["a:1:x", "b\nc:2:y"]


def test_files_are_set_apart_where_there_is_context() -> None:
    assert page_of(b"a\x001:x\nb\x002:y\n", context=1).rows == ["a:1:x", "--", "b:2:y"]


def test_errors_of_a_back_end_are_no_records() -> None:
    page = page_of(b"regex parse error:\n  (x\n")
    assert (page.rows, page.junk) == ([], "regex parse error:\n  (x")


def test_context_is_shown_once_and_only_around_what_matches() -> None:
    lines = [str(n) for n in range(1, 10)]
    shown = b" ".join(_shown(lines, iter([1, 3, 3, 8]), 1)).decode()
    assert shown == "1-1 2:2 3-3 4:4 5-5 8-8 9:9"
