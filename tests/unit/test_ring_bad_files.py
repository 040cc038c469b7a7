"""Damaged rings, what is no ring at all, and disks without room for one."""

from __future__ import annotations

import os
import random
import resource
import subprocess
from contextlib import closing, suppress
from pathlib import Path

import pytest

from session_worker.ring import RingWriter
from sidecar.protocol.bounds import RING_MIN_BYTES
from sidecar.protocol.ring import (
    HEAD,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    NEXT_SEQ,
    RECORD,
    TAIL,
    Gap,
    RingCorrupt,
    RingError,
    RingFull,
    RingReader,
)

SIZE = RING_MIN_BYTES


def opened(path: Path) -> closing[RingWriter]:
    return closing(RingWriter.open(path, SIZE))


def patch(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def patch_word(path: Path, index: int, value: int) -> None:
    patch(path, index * 8, value.to_bytes(8, "little"))


@pytest.mark.parametrize(
    "header",
    [
        (b"SCRING02", HEADER_BYTES, 0, SIZE, 0),
        (MAGIC, 0, 0, SIZE, 0),
        (MAGIC, HEADER_BYTES, 1, SIZE, 0),
        (MAGIC, HEADER_BYTES, 0, SIZE * 2, 0),
        (MAGIC, HEADER_BYTES, 0, SIZE - 1, 0),
        (MAGIC, HEADER_BYTES, 0, 0, 0),
        (MAGIC, HEADER_BYTES, 0, 2**63, 0),
    ],
)
def test_a_hostile_header_is_refused_by_both_ends(
    tmp_path: Path, header: tuple[object, ...]
) -> None:
    path = tmp_path / "ring"
    with opened(path):
        patch(path, 0, HEADER.pack(*header))
    with pytest.raises(RingCorrupt):
        RingReader.open(path)
    with pytest.raises(RingCorrupt):
        RingWriter.open(path, SIZE)


@pytest.mark.parametrize("index", [TAIL, HEAD])
@pytest.mark.parametrize("value", [1, 2**40, 2**63, 2**64 - 8])
def test_hostile_offsets_are_corruption_for_both_ends(
    tmp_path: Path, index: int, value: int
) -> None:
    path = tmp_path / "ring"
    with opened(path) as writer:
        writer.append(b"x" * 100)
    patch_word(path, index, value)
    with pytest.raises(RingCorrupt), RingReader.open(path) as reader:
        reader.read(10)
    with pytest.raises(RingCorrupt):
        RingWriter.open(path, SIZE)


def test_a_writer_does_not_mint_a_number_twice_after_damage(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    with opened(path) as writer:
        for _ in range(5):
            writer.append(b"x")
    patch_word(path, NEXT_SEQ, 3)
    with pytest.raises(RingCorrupt):
        RingWriter.open(path, SIZE)


def test_a_number_is_not_delivered_twice_after_damage(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    with opened(path) as writer, RingReader.open(path) as reader:
        for _ in range(4):
            writer.append(bytes(writer.max_payload))
        assert len(reader.read(10)) == 4
        patch_word(path, HEAD, 2 * SIZE)
        patch_word(path, TAIL, SIZE)
        with pytest.raises(RingCorrupt):
            reader.read(10)


def test_a_writer_whose_ring_is_zeroed_under_it_fails_instead_of_spinning(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    with opened(path) as writer:
        writer.append(bytes(100))
        patch(path, HEADER_BYTES, bytes(SIZE))
        with pytest.raises(RingCorrupt):
            for _ in range(5):
                writer.append(bytes(writer.max_payload))


def test_a_seek_over_a_zeroed_record_ends_and_leaves_the_error_to_the_read(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    with opened(path) as writer, RingReader.open(path) as reader:
        for _ in range(3):
            writer.append(bytes(8))
        patch(path, HEADER_BYTES + RECORD.size + 8, bytes(RECORD.size + 8))
        reader.seek(2)
        with pytest.raises(RingCorrupt):
            reader.read(10)


def test_records_before_a_damaged_one_are_delivered_before_the_error(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    with opened(path) as writer:
        for _ in range(3):
            writer.append(b"x" * 8)
    patch(path, HEADER_BYTES + 2 * (RECORD.size + 8) + RECORD.size, b"y")
    with RingReader.open(path) as reader:
        assert [item[0] for item in reader.read(10)] == [1, 2]
        with pytest.raises(RingCorrupt):
            reader.read(10)


@pytest.mark.parametrize("seed", range(150))
def test_damage_anywhere_is_an_error_and_never_a_wrong_record(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "ring"
    written: dict[int, bytes] = {}
    with opened(path) as writer:
        for _ in range(rng.choice((3, 40, 400))):
            payload = rng.randbytes(rng.choice((0, 20, 300, 3000)))
            written[writer.append(payload)] = payload
    for _ in range(rng.choice((1, 1, 4, 64))):
        top = rng.choice((HEADER.size, 300, 5000, HEADER_BYTES + SIZE))
        patch(path, rng.randrange(top), rng.randbytes(rng.choice((1, 4, 8))))
    cursor = rng.choice((0, len(written) // 2))
    with suppress(RingError), RingReader.open(path) as reader:
        reader.seek(cursor)
        while batch := reader.read(16):
            for item in batch:
                assert item[0] == cursor + 1
                assert isinstance(item, Gap) or item.payload == written[item.seq]
                cursor = item.to_seq if isinstance(item, Gap) else item.seq
        assert reader.stats().capacity_bytes == SIZE
    with suppress(RingError), opened(path) as writer:
        writer.append(bytes(writer.max_payload))


def test_a_ring_truncated_under_its_reader_is_an_error_and_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    with opened(path), RingReader.open(path) as reader:
        os.truncate(path, 10)
        for look in (reader.stats, lambda: reader.read(1), lambda: reader.seek(0)):
            with pytest.raises(RingCorrupt):
                look()
        os.truncate(path, HEADER_BYTES + SIZE)  # for the writer to close


def test_what_is_no_ring_is_refused_and_left_alone(tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    with opened(ring):
        pass
    (tmp_path / "link").symlink_to(ring)
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("not a ring\n" * 1000)
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "dangling", "empty", "text", "fifo"):
        before = (tmp_path / name).lstat()
        with pytest.raises(RingCorrupt):
            RingReader.open(tmp_path / name)
        with pytest.raises(RingCorrupt):
            RingWriter.open(tmp_path / name, SIZE)
        assert (tmp_path / name).lstat().st_mtime_ns == before.st_mtime_ns


def test_a_ring_that_does_not_exist_is_the_system_s_own_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RingReader.open(tmp_path / "ring")


def test_a_file_size_limit_is_a_full_disk_and_leaves_no_file(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE, hard))
    try:
        with pytest.raises(RingFull):
            RingWriter.open(tmp_path / "ring", SIZE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_at_creation_and_leaves_no_file(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(tmp_path)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs root and the right to mount a tmpfs")
    try:
        with pytest.raises(RingFull):
            RingWriter.open(tmp_path / "ring", SIZE)
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_the_leftover_of_a_creation_that_was_killed_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "ring.new").write_bytes(b"half a header")
    with opened(tmp_path / "ring") as writer:
        assert writer.append(b"x") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["ring"]
