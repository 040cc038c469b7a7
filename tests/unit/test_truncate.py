"""Truncation: what the model sees of a text or a file, by example and by property."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_worker.tools.truncate import (
    MARKER_CHARS,
    RAW_PER_CHAR,
    clean,
    excerpt,
    json_safe,
    newest,
    shorten,
    size_text,
)

HEAD, TAIL = 30, 70 + MARKER_CHARS

texts = st.text(st.characters(exclude_categories=["Cs"]))
noise = st.lists(
    st.sampled_from(
        ["\x1b[31m", "\x1b]0;t\x07", "\x1b", "\x9b", "\r", "\n", "\0", "\ud800", "a", "é"]
    )
).map("".join)


@contextmanager
def file_of(data: bytes) -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        yield file.fileno()


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r0m\x1b\\after", "after"),
        ("\x1b]0;never ends\nnext line", "\nnext line"),
        ("\x1b(Bplain\x1b=\x1bM", "plain"),
        ("\x9b31m", "31m"),
        ("cut\x1b[3", "cut"),
        ("cut\x1b", "cut"),
        ("a\x07\x08b\x7f", "ab"),
        ("10%\r50%\r100%\ndone", "100%\ndone"),
        ("100%\r\n", "100%\n"),
        ("dos\r\nlines\r\r\n", "dos\nlines\n"),
        ("working\r\x1b[K", "working"),
        ("a\tb", "a\tb"),
        ("nul\0", "nul\u2400"),
        ("\ud83d lone", "\ufffd lone"),
        ("zwj 👩‍👩‍👧 stays", "zwj 👩‍👩‍👧 stays"),
    ],
)
def test_clean_leaves_what_a_terminal_would_show(raw: str, seen: str) -> None:
    assert clean(raw) == seen


@given(st.one_of(noise, st.text()))
def test_clean_text_has_no_controls_is_json_safe_and_stays_as_it_is(text: str) -> None:
    cleaned = clean(text)
    assert all(ch in "\t\n" or not (ch < " " or "\x7f" <= ch <= "\x9f") for ch in cleaned)
    assert json.loads(json.dumps(cleaned).encode()) == cleaned
    assert clean(cleaned) == cleaned


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_clean_does_not_touch_plain_text(text: str) -> None:
    assert clean(text) == text


@given(texts)
def test_short_text_is_not_shortened(text: str) -> None:
    assert shorten(text[: HEAD + TAIL], HEAD, TAIL) == text[: HEAD + TAIL]


@given(st.lists(st.one_of(texts, st.just("\n"), st.just("x" * 40))).map("".join))
def test_shortened_text_is_its_start_a_marker_and_its_end_within_the_limit(text: str) -> None:
    text += "y" * (HEAD + TAIL + 1)
    short = shorten(text, HEAD, TAIL)
    assert len(short) <= HEAD + TAIL
    head, _, rest = short.partition("… ")
    assert text.startswith(head.removesuffix("\n"))
    assert text.endswith(rest.split("omitted …\n", 1)[1])


def test_parts_end_and_start_at_line_borders() -> None:
    text = "".join(f"line {n}\n" for n in range(100))
    assert shorten(text, HEAD, TAIL) == (
        "line 0\nline 1\nline 2\nline 3\n… 88 lines/698B omitted …\n"
        + "".join(f"line {n}\n" for n in range(92, 100))
    )


def test_a_short_first_line_does_not_cost_the_rest_of_the_head() -> None:
    short = shorten("a\n" + "x" * 500, HEAD, TAIL)
    assert short.startswith("a\n" + "x" * (HEAD - 2) + "\n… ")


@given(st.binary(), st.binary())
def test_an_excerpt_of_any_file_is_text_that_fits(start: bytes, end: bytes) -> None:
    filler = b"\xc3\xa9" * (RAW_PER_CHAR * (HEAD + TAIL))
    for data in (start + end, start + filler + end):
        with file_of(data) as fd:
            found = excerpt(fd, HEAD, TAIL)
        assert found.size == len(data)
        assert found.lines == data.count(b"\n") + (data[-1:] not in (b"", b"\n"))
        assert len(found.text) <= HEAD + TAIL
        assert clean(found.text) == found.text
        assert found.cut == (clean(data.decode(errors="replace")) != found.text)


@given(st.text("aé漢😀", min_size=1), st.integers(0, 3))
def test_no_code_point_is_split_where_a_file_is_cut(pattern: str, shift: int) -> None:
    text = "x" * shift + pattern * (RAW_PER_CHAR * (HEAD + TAIL))
    with file_of(text.encode()) as fd:
        found = excerpt(fd, HEAD, TAIL)
    assert found.cut
    assert "\ufffd" not in found.text
    assert found.text.startswith(text[:HEAD])
    assert found.text.endswith(text[-(TAIL - MARKER_CHARS) :])


def test_a_file_of_repaints_is_shown_whole_though_it_is_longer_than_the_limit() -> None:
    data = b"".join(b"\r%d%%" % n for n in range(101)) + b"\ndone\n"
    assert len(data) > HEAD + TAIL
    with file_of(data) as fd:
        found = excerpt(fd, HEAD, TAIL)
    assert (found.text, found.cut) == ("100%\ndone\n", False)


def test_an_empty_file_has_no_lines() -> None:
    with file_of(b"") as fd:
        assert excerpt(fd, HEAD, TAIL).lines == 0


@given(st.lists(st.one_of(texts, noise.map(json_safe))), st.integers(1, 50))
def test_live_pieces_hold_back_what_is_not_complete(pieces: list[str], chunk: int) -> None:
    """However the bytes arrive, the pieces together are the text the whole would have given."""
    data = "".join(pieces).encode()
    shown, seen = "", 0
    with file_of(b"") as fd:
        for offset in range(0, len(data), chunk):
            os.pwrite(fd, data[offset : offset + chunk], offset)
            text, seen = newest(fd, seen, len(data))
            shown += text
        with file_of(data) as whole:
            assert (shown, seen) == newest(whole, 0, len(data))


def test_of_much_live_output_only_the_newest_is_shown_and_the_rest_counted() -> None:
    with file_of(b"old" * 100 + "ü".encode() + b"new") as fd:
        assert newest(fd, 0, 4) == ("… 301 bytes skipped …\nnew", 305)


def test_live_output_goes_on_after_the_file_was_emptied() -> None:
    with file_of(b"after") as fd:
        assert newest(fd, 1000, 100) == ("after", 5)


def test_live_repaints_come_as_lines() -> None:
    with file_of(b"10%\r20%\r\nend\r") as fd:
        assert newest(fd, 0, 100)[0] == "10%\n20%\nend"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0B"), (1023, "1023B"), (98_304, "96KB"), (64 << 20, "64MB")]
)
def test_sizes_are_written_for_people(size: int, text: str) -> None:
    assert size_text(size) == text
