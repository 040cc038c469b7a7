"""The transcript loses no whole record, keeps no half one, and gives messages the API accepts."""

from __future__ import annotations

import json
import random
import resource
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session_worker.transcript import (
    Transcript,
    TranscriptFull,
    TranscriptLocked,
    read,
)

NASTY = "line\nbreak \r \u2028 \u2029 \x85 \x00 lone \ud83d and \udc00, emoji \U0001f600"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "transcript.jsonl"


def write(path: Path, *texts: str) -> None:
    with closing(Transcript.open(path)) as transcript:
        for text in texts:
            transcript.append("note", text=text)


def texts(path: Path) -> list[str]:
    return [record["text"] for record in read(path)]


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """A real full disk for this process: a write up to `size` is cut short, one past it fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_record_is_one_line_with_its_number_time_and_kind(path: Path) -> None:
    with closing(Transcript.open(path)) as transcript:
        assert transcript.append("note", text=NASTY) == 1
        assert transcript.append("session", sync=True, cwd="/") == 2
    first, second = path.read_bytes().removesuffix(b"\n").split(b"\n")
    assert list(json.loads(first)) == ["v", "n", "at", "kind", "text"]
    assert json.loads(first)["text"] == NASTY
    record = json.loads(second)
    assert record.pop("at").endswith("Z")
    assert record == {"v": 1, "n": 2, "kind": "session", "cwd": "/"}


def test_a_field_cannot_replace_the_number_of_a_record(path: Path) -> None:
    with closing(Transcript.open(path)) as transcript:
        with pytest.raises(TypeError):
            transcript.append("api_call", n=7)
        assert transcript.append("note") == 1


def test_numbers_go_on_after_a_reopen(path: Path) -> None:
    write(path, "a", "b")
    write(path, "c")
    assert [(record["n"], record["text"]) for record in read(path)] == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
    ]


def test_a_second_writer_is_refused_until_the_first_has_closed(path: Path) -> None:
    with closing(Transcript.open(path)), pytest.raises(TranscriptLocked):
        Transcript.open(path)
    Transcript.open(path).close()


def test_only_the_owner_may_read_the_files(path: Path) -> None:
    write(path, "a")
    with path.open("ab") as file:
        file.write(b"torn")
    write(path)
    assert [p.stat().st_mode & 0o777 for p in (path, path.with_suffix(".torn"))] == [0o600, 0o600]


def test_a_symbolic_link_is_not_followed(path: Path) -> None:
    path.symlink_to("elsewhere")
    with pytest.raises(OSError):
        Transcript.open(path)
    assert not (path.parent / "elsewhere").exists()


@pytest.mark.parametrize("room", [0, 1, 500])
def test_a_record_that_does_not_fit_leaves_the_file_as_it_was(path: Path, room: int) -> None:
    with closing(Transcript.open(path)) as transcript:
        transcript.append("note", text="a")
        before = path.read_bytes()
        with file_size_limit(len(before) + room), pytest.raises(TranscriptFull):
            transcript.append("note", text="b" * 1000)
        assert path.read_bytes() == before
        assert transcript.append("note", text="c") == 2
    assert texts(path) == ["a", "c"]


def test_any_cut_of_a_file_keeps_every_whole_record(path: Path) -> None:
    rng = random.Random(8)
    write(path, *(NASTY + "x" * rng.randrange(3000) for _ in range(40)))
    whole = path.read_bytes()
    torn = path.with_suffix(".torn")
    for cut in [0, 1, len(whole), *(rng.randrange(len(whole)) for _ in range(500))]:
        path.write_bytes(whole[:cut])
        torn.unlink(missing_ok=True)
        end = whole.rfind(b"\n", 0, cut) + 1
        with closing(Transcript.open(path)) as transcript:
            assert transcript.n == whole.count(b"\n", 0, cut)
            assert transcript.torn_bytes == cut - end
        assert path.read_bytes() == whole[:end]
        assert cut == end or torn.read_bytes() == whole[end:cut]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=50), min_size=1, max_size=4), st.booleans())
def test_what_follows_the_last_record_is_cut_and_kept(
    tmp_path_factory: pytest.TempPathFactory, garbage: list[bytes], newline: bool
) -> None:
    path = tmp_path_factory.mktemp("t") / "transcript.jsonl"
    write(path, "a", "b" * 100_000)
    whole = path.read_bytes()
    tail = b"\n".join(garbage) + b"\n" * newline
    path.write_bytes(whole + tail)
    with closing(Transcript.open(path)) as transcript:
        assert (transcript.n, transcript.torn_bytes) == (2, len(tail))
    assert path.read_bytes() == whole
    assert not tail or path.with_suffix(".torn").read_bytes() == tail


def test_torn_tails_are_collected(path: Path) -> None:
    for tail in (b'{"v":1', b"\0" * 200_000):
        write(path)
        with path.open("ab") as file:
            file.write(tail)
    write(path)
    assert path.with_suffix(".torn").read_bytes() == b'{"v":1' + b"\0" * 200_000


def test_reading_skips_a_corrupt_line_and_reports_where_it_is(path: Path) -> None:
    write(path, "a", "b", "c")
    lines = path.read_bytes().splitlines(keepends=True)
    bad = [b"\xff\xfe\n", b"\n", b"[" * 100_000 + b"\n", b'{"kind":"note"}\n', b"[1]\n", b"7\n"]
    path.write_bytes(b"".join([lines[0], *bad, *lines[1:], b'{"v":1,"n":4,"kind":"no']))
    corrupt: list[int] = []
    assert [record["text"] for record in read(path, corrupt.append)] == ["a", "b", "c"]
    assert len(corrupt) == len(bad)
    assert corrupt[0] == len(lines[0])


def test_a_reader_sees_what_is_written_while_it_reads(path: Path) -> None:
    with closing(Transcript.open(path)) as transcript:
        transcript.append("note", text="a")
        records = read(path)
        assert next(records)["text"] == "a"
        transcript.append("note", text="b")
        assert next(records)["text"] == "b"
        with path.open("ab") as file:
            file.write(b'{"half":')
        assert list(records) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
ANY_TEXT = st.text(st.characters(exclude_categories=[]))


@settings(deadline=None)
@given(JSON | ANY_TEXT)
def test_any_json_value_survives(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.mktemp("t") / "transcript.jsonl"
    with closing(Transcript.open(path)) as transcript:
        transcript.append("note", value=value)
    assert [record["value"] for record in read(path)] == [value]
