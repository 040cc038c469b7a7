"""A writer killed at any moment loses nothing it was told is written."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from session_worker.transcript import Transcript, read

ROOT = Path(__file__).parents[2]
KILLS = 25
WRITER = """
import os, sys
from pathlib import Path
from session_worker.transcript import Transcript

transcript = Transcript.open(Path(sys.argv[1]))
acks = os.open(sys.argv[2], os.O_WRONLY)
size = int(sys.argv[3])
os.write(1, b"!")
for _ in range(100_000_000 // size):
    n = transcript.append("note", text=f"{transcript.n + 1} " + "x" * size)
    os.pwrite(acks, n.to_bytes(8, "big"), 0)
"""


def write_until_killed(path: Path, acks: Path, size: int, growth: int) -> None:
    """Run a real writer and kill it once the file has grown by `growth` bytes."""
    limit = path.stat().st_size + growth if path.exists() else growth
    argv = [sys.executable, "-c", WRITER, str(path), str(acks), str(size)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout
            assert writer.stdout.read(1) == b"!"
            while path.stat().st_size < limit:
                assert writer.poll() is None
        finally:
            writer.kill()


@pytest.mark.parametrize(
    ("size", "most"),
    [
        (300, 200_000),
        pytest.param(20_000, 500_000, marks=pytest.mark.soak),
        pytest.param(1_000_000, 3_000_000, marks=pytest.mark.soak),
    ],
)
def test_a_killed_writer_leaves_every_acknowledged_record(
    tmp_path: Path, size: int, most: int
) -> None:
    path, acks, torn = (tmp_path / name for name in ("transcript.jsonl", "acks", "transcript.torn"))
    acks.write_bytes(bytes(8))
    rng = random.Random(size)
    tails = b""
    for _ in range(KILLS):
        write_until_killed(path, acks, size, rng.randrange(1, most))
        content = path.read_bytes()
        tail = content[content.rfind(b"\n") + 1 :]
        tails += tail
        with closing(Transcript.open(path)) as transcript:
            assert transcript.torn_bytes == len(tail)
            assert transcript.n >= int.from_bytes(acks.read_bytes(), "big")
            found = [(record["n"], record["text"]) for record in read(path)]
        assert found == [(n, f"{n} " + "x" * size) for n in range(1, transcript.n + 1)]
        assert (torn.read_bytes() if tails else b"") == tails
