"""Real processes on one ring: a writer flat out, readers it laps, and kills in the middle.

Run as a program this file is the writer or a reader: `test_ring_stress.py write|read RING LAST`.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from session_worker.ring import RingWriter
from sidecar.protocol.bounds import MIB, RING_MIN_BYTES, RING_READ_BATCH
from sidecar.protocol.ring import EPOCH, Gap, Record, RingReader

ROOT = Path(__file__).parents[2]
RECORDS = 60_000
KILLS = 20
KILLED_WRITER_RECORDS = 2_000_000
"""Far more than a writer gets to before it is killed, yet an orphan would end."""
PROCESS_S = 60.0
NOISE = random.Random(1).randbytes(8192)


def payload_of(seq: int) -> bytes:
    """Whole content and length follow from the number, so that a reader can tell any damage."""
    length = 3000 if seq % 50 == 0 else seq * 7919 % 300
    return seq.to_bytes(8, "little") + NOISE[seq % 4096 : seq % 4096 + length]


def write(path: Path, last: int) -> None:
    with closing(RingWriter.open(path, RING_MIN_BYTES)) as writer:
        print("ready", flush=True)
        while writer.next_seq <= last:
            writer.append(payload_of(writer.next_seq))


def read(path: Path, last: int) -> None:
    """Print how many records came and how many were lost before number `last` was reached."""
    cursor = delivered = 0
    with RingReader.open(path) as reader:
        print("ready", flush=True)
        while cursor < last:
            cursor, more = account(reader.read(RING_READ_BATCH), cursor)
            if delivered == 0 and more:
                wait_until_lapped(reader, cursor, last)
            delivered += more
            stats = reader.stats()
            assert cursor <= stats.last_seq <= last
            assert stats.first_seq <= stats.last_seq + 1
    print(delivered, cursor - delivered)


def account(items: list[Record | Gap], cursor: int) -> tuple[int, int]:
    """Check that the items go on behind `cursor`, whole; the new cursor, and how many records."""
    records = 0
    for item in items:
        assert item[0] == cursor + 1
        if isinstance(item, Gap):
            cursor = item.to_seq
        else:
            assert item.payload == payload_of(item.seq)
            cursor = item.seq
            records += 1
    return cursor, records


def wait_until_lapped(reader: RingReader, cursor: int, last: int) -> None:
    stats = reader.stats()
    while stats.first_seq <= cursor + 1 and stats.last_seq < last:
        stats = reader.stats()


@contextmanager
def started(role: str, path: Path, last: int) -> Iterator[subprocess.Popen[str]]:
    """A process of this file that has said it is ready, and is gone afterwards."""
    argv = [sys.executable, "-W", "error", __file__, role, str(path), str(last)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=env, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def stress(path: Path, size: int) -> None:
    RingWriter.open(path, size).close()
    with (
        started("read", path, RECORDS) as first,
        started("read", path, RECORDS) as second,
        started("write", path, RECORDS) as writer,
    ):
        assert writer.wait(PROCESS_S) == 0
        for reader in (first, second):
            out, _ = reader.communicate(timeout=PROCESS_S)
            assert reader.returncode == 0
            delivered, lost = map(int, out.split())
            assert lost > 0
            assert delivered + lost == RECORDS


def test_readers_of_a_small_ring_are_lapped_all_the_time_and_get_no_bad_record(
    tmp_path: Path,
) -> None:
    stress(tmp_path / "ring", RING_MIN_BYTES)


def test_readers_of_a_default_ring_are_lapped_and_get_no_bad_record(tmp_path: Path) -> None:
    stress(tmp_path / "ring", 4 * MIB)


def test_a_ring_survives_its_writer_being_killed_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    rng = random.Random(5)
    RingWriter.open(path, RING_MIN_BYTES).close()
    cursor = 0
    with RingReader.open(path) as follower:
        for _ in range(KILLS):
            goal = cursor + rng.randrange(1, 5000)
            with started("write", path, KILLED_WRITER_RECORDS) as writer:
                while cursor < goal:
                    assert writer.poll() is None
                    cursor, _ = account(follower.read(RING_READ_BATCH), cursor)
            while items := follower.read(RING_READ_BATCH):
                cursor, _ = account(items, cursor)
            assert cursor == follower.stats().last_seq
        with closing(RingWriter.open(path, RING_MIN_BYTES)) as writer:
            new = writer.append(payload_of(writer.next_seq))
        cursor, _ = account(follower.read(RING_READ_BATCH), cursor)
        assert cursor == new
    assert memoryview(path.read_bytes()[: 8 * EPOCH + 8]).cast("Q")[EPOCH] == KILLS + 2


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
