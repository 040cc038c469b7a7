"""The ring file against a plain list, and against kills and laps at every line."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from types import CodeType, FrameType

import pytest

from session_worker.ring import RingWriter
from sidecar.protocol.bounds import RING_MAX_BYTES, RING_MIN_BYTES
from sidecar.protocol.ring import (
    EPOCH,
    HEADER_BYTES,
    RECORD,
    CursorInFuture,
    Gap,
    Record,
    RecordTooLarge,
    RingReader,
    RingStats,
)

SIZE = RING_MIN_BYTES
BLOB = random.Random(1).randbytes(SIZE)
EVERYTHING = 1_000_000


def payload_of(seq: int, length: int) -> bytes:
    start = seq * 37 % (SIZE // 2)
    return BLOB[start : start + length]


def opened(path: Path, size: int = SIZE) -> closing[RingWriter]:
    return closing(RingWriter.open(path, size))


def read_all(path: Path, after: int = 0) -> list[Record | Gap]:
    with RingReader.open(path) as reader:
        reader.seek(after)
        return reader.read(EVERYTHING)


def numbers(items: list[Record | Gap]) -> list[int]:
    """Every number the items account for, in order."""
    accounted: list[int] = []
    for item in items:
        if isinstance(item, Gap):
            accounted.extend(range(item.from_seq, item.to_seq + 1))
        else:
            accounted.append(item.seq)
    return accounted


class Model:
    """What a ring must hold, as a list of (bytes taken, seq, or None for padding)."""

    def __init__(self) -> None:
        self.payloads: dict[int, bytes] = {}
        self.kept: list[tuple[int, int | None]] = []
        self.bytes_written = 0

    def append(self, payload: bytes) -> int:
        seq = len(self.payloads) + 1
        self.payloads[seq] = payload
        total = (24 + len(payload) + 7) // 8 * 8
        room = SIZE - self.bytes_written % SIZE
        for entry in ([(room, None)] if total > room else []) + [(total, seq)]:
            self.kept.append(entry)
            self.bytes_written += entry[0]
        while sum(size for size, _ in self.kept) > SIZE:
            self.kept.pop(0)
        return seq

    def after(self, cursor: int) -> list[Record | Gap]:
        seqs = [seq for _, seq in self.kept if seq and seq > cursor]
        out: list[Record | Gap] = [Record(seq, 1, self.payloads[seq]) for seq in seqs]
        if seqs and seqs[0] > cursor + 1:
            out.insert(0, Gap(cursor + 1, seqs[0] - 1))
        return out

    def stats(self) -> RingStats:
        used = sum(size for size, _ in self.kept)
        first = min((seq for _, seq in self.kept if seq), default=1)
        last = len(self.payloads)
        return RingStats(SIZE, used, first, last, first - 1, self.bytes_written - used)


@pytest.mark.parametrize("seed", range(40))
def test_a_ring_holds_what_a_list_would_hold(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "ring"
    model = Model()
    writer = RingWriter.open(path, SIZE)
    follower, cursor = RingReader.open(path), 0
    for _ in range(rng.choice((20, 200))):
        for _ in range(rng.choice((1, 1, 1, 10, 60))):
            length = rng.choice((0, 1, 8, rng.randrange(300), rng.randrange(writer.max_payload)))
            payload = payload_of(writer.next_seq, length)
            assert writer.append(payload) == model.append(payload)
        if rng.random() < 0.1:
            writer.close()
            writer = RingWriter.open(path, SIZE)
        assert follower.stats() == model.stats()
        if rng.random() < 0.3:
            cursor = rng.randrange(writer.next_seq)
            follower.seek(cursor)
        expected = model.after(cursor)
        limit = rng.choice((1, 3, EVERYTHING))
        got = follower.read(limit)
        assert got == expected[: limit + isinstance(expected[0], Gap) if expected else 0]
        cursor = numbers(got)[-1] if got else cursor
    follower.close()
    writer.close()


def test_an_empty_ring_starts_at_number_one(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    with opened(path) as writer, RingReader.open(path) as reader:
        assert writer.next_seq == 1
        assert reader.read(EVERYTHING) == []
        assert reader.stats() == RingStats(SIZE, 0, 1, 0, 0, 0)


def test_records_that_fill_the_ring_exactly_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    with opened(path) as writer, RingReader.open(path) as reader:
        for _ in range(4):
            writer.append(bytes(writer.max_payload))
        assert reader.stats() == RingStats(SIZE, SIZE, 1, 4, 0, 0)
        writer.append(b"")
        assert numbers(reader.read(1)) == [1, 2]
        assert reader.stats().first_seq == 2


@pytest.mark.parametrize("room", [8, 16, 24, 32])
def test_padding_at_the_end_may_be_smaller_than_a_record_header(tmp_path: Path, room: int) -> None:
    path = tmp_path / "ring"
    model = Model()
    with opened(path) as writer:
        most = writer.max_payload
        for length in (most, most, most, most - room, 100, most, most, most):
            payload = payload_of(writer.next_seq, length)
            assert writer.append(payload) == model.append(payload)
            assert read_all(path) == model.after(0)


def test_a_payload_over_a_quarter_of_the_ring_is_refused_and_costs_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "ring") as writer:
        assert writer.max_payload == SIZE // 4 - RECORD.size
        with pytest.raises(RecordTooLarge):
            writer.append(bytes(writer.max_payload + 1))
        assert writer.append(bytes(writer.max_payload)) == 1


def test_a_kind_is_delivered_with_its_record(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    with opened(path) as writer:
        writer.append(b"x", kind=7)
    assert read_all(path) == [Record(1, 7, b"x")]


def test_a_batch_stops_before_max_bytes_but_not_before_its_first_record(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    with opened(path) as writer, RingReader.open(path) as reader:
        for _ in range(4):
            writer.append(bytes(100))
        assert [numbers(reader.read(EVERYTHING, max_bytes=most)) for most in (250, 99, 0)] == [
            [1, 2],
            [3],
            [4],
        ]


def test_a_cursor_of_the_future_is_refused_and_the_newest_is_not(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    with opened(path) as writer, RingReader.open(path) as reader:
        writer.append(b"x")
        reader.seek(1)
        assert reader.read(EVERYTHING) == []
        with pytest.raises(CursorInFuture):
            reader.seek(2)
        writer.append(b"y")
        assert reader.read(EVERYTHING) == [Record(2, 1, b"y")]


def test_reopening_keeps_contents_size_and_numbers_and_counts_the_epoch(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    with opened(path, 2 * SIZE) as writer:
        writer.append(b"one")
    with RingReader.open(path) as follower:
        with opened(path, SIZE) as writer:
            assert writer.append(b"two") == 2
        assert [item[-1] for item in follower.read(EVERYTHING)] == [b"one", b"two"]
        assert follower.stats().capacity_bytes == 2 * SIZE
    words = memoryview(path.read_bytes()[:HEADER_BYTES]).cast("Q")
    assert words[EPOCH] == 2


def test_a_ring_is_private_and_takes_its_whole_space_at_once(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    with opened(path):
        found = path.stat()
    assert found.st_mode & 0o777 == 0o600
    assert found.st_size == HEADER_BYTES + SIZE <= found.st_blocks * 512
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("size", [0, -1, SIZE // 2, SIZE + 8, 3 * SIZE, 2 * RING_MAX_BYTES])
def test_a_size_that_is_no_power_of_two_in_bounds_is_refused(tmp_path: Path, size: int) -> None:
    with pytest.raises(ValueError, match="bytes"):
        RingWriter.open(tmp_path / "ring", size)
    assert list(tmp_path.iterdir()) == []


# --- kills and laps at every line ---------------------------------------------------------------


def trace(codes: set[CodeType], on_line: Callable[[], object], act: Callable[[], object]) -> None:
    """Run `act`, calling `on_line` before each line of the functions that own `codes`."""

    def local(frame: FrameType, event: str, arg: object) -> object:
        if event == "line":
            on_line()
        return local

    previous = sys.gettrace()
    sys.settrace(lambda frame, event, arg: local if frame.f_code in codes else None)
    try:
        act()
    finally:
        sys.settrace(previous)


def interrupt(act: Callable[[], None], line: int, by: Callable[[], object]) -> bool:
    """Run `act`, and `by` before the `line`-th line of the reader; False if it has fewer."""
    lines = count()
    trace(codes_of(RingReader), lambda: by() if next(lines) == line else None, act)
    return next(lines) > line


def codes_of(cls: type) -> set[CodeType]:
    return {each.__code__ for each in vars(cls).values() if hasattr(each, "__code__")}


def test_a_writer_killed_at_any_line_leaves_a_ring_that_goes_on(tmp_path: Path) -> None:
    path, copy = tmp_path / "ring", tmp_path / "copy"
    rng = random.Random(2)
    model = Model()
    skipped = 0
    writer = RingWriter.open(path, SIZE)
    for _ in range(30):
        payload = payload_of(writer.next_seq, rng.randrange(writer.max_payload))
        model.append(payload)
        images: dict[bytes, None] = {}
        trace(
            codes_of(RingWriter),
            lambda images=images: images.setdefault(path.read_bytes()),
            lambda payload=payload: writer.append(payload),
        )
        for image in images:
            copy.write_bytes(image)
            with RingReader.open(copy) as follower, opened(copy) as successor:
                items = follower.read(EVERYTHING)
                last = follower.stats().last_seq
                assert numbers(items) == list(range(1, last + 1))
                new = successor.append(b"after the kill")
                skipped += new - last - 1
                items += follower.read(EVERYTHING)
            assert numbers(items) == list(range(1, new + 1))
            assert items[-1] == Record(new, 1, b"after the kill")
            for item in items[:-1]:
                assert isinstance(item, Gap) or item.payload == model.payloads[item.seq]
    writer.close()
    assert skipped == 30  # the one state between NEXT_SEQ and HEAD, once an append


@pytest.mark.parametrize("burst", [1, 5, 400])
@pytest.mark.parametrize("method", ["read", "seek"])
def test_a_reader_lapped_at_any_line_loses_nothing_uncounted(
    tmp_path: Path, method: str, burst: int
) -> None:
    path = tmp_path / "ring"
    rng = random.Random(3)
    written: dict[int, bytes] = {}

    def append(times: int) -> None:
        for _ in range(times):
            payload = payload_of(writer.next_seq, rng.choice((0, 50, 1000, 16_000)))
            written[writer.append(payload)] = payload

    def interrupted_at(line: int) -> bool:
        with RingReader.open(path) as reader:
            after = rng.randrange(reader.stats().first_seq - 1, writer.next_seq)
            reader.seek(after)
            items: list[Record | Gap] = []
            act: dict[str, Callable[[], None]] = {
                "read": lambda: items.extend(reader.read(2)),
                "seek": lambda: reader.seek(after),
            }
            reached = interrupt(act[method], line, lambda: append(burst))
            items += reader.read(EVERYTHING)
        assert numbers(items) == list(range(after + 1, writer.next_seq))
        assert all(written[item.seq] == item.payload for item in items if isinstance(item, Record))
        return reached

    with opened(path) as writer:
        append(20)
        assert next(line for line in count() if not interrupted_at(line)) > 10


def test_the_oldest_number_is_true_even_if_told_during_an_append(tmp_path: Path) -> None:
    path = tmp_path / "ring"

    def interrupted_at(line: int) -> bool:
        told: list[RingStats] = []
        before = reader.stats()
        reached = interrupt(lambda: told.append(reader.stats()), line, lambda: writer.append(whole))
        after = reader.stats()
        assert told[0].first_seq in (before.first_seq, after.first_seq)
        assert told[0].last_seq in (before.last_seq, after.last_seq)
        return reached

    with opened(path) as writer, RingReader.open(path) as reader:
        whole = bytes(writer.max_payload)
        for _ in range(4):
            writer.append(whole)  # full, so that the next one takes the place of the oldest
        assert next(line for line in count() if not interrupted_at(line)) > 10


def test_the_newest_number_is_not_told_before_its_record_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    with opened(path) as writer, RingReader.open(path) as reader, RingReader.open(path) as witness:
        lengths = [random.Random(4).randrange(writer.max_payload) for _ in range(20)]

        def on_line() -> None:
            last = witness.stats().last_seq
            items = reader.read(EVERYTHING)
            assert not items or numbers(items)[-1] == last

        trace(
            codes_of(RingWriter),
            on_line,
            lambda: [writer.append(bytes(length)) for length in lengths],
        )
