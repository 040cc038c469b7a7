"""Ring appends, reads and seeks of 200 B events, beside what an event costs anyway.

Run `python -m benchmarks.bench_ring`.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

from session_worker.ring import RingWriter
from sidecar.protocol.bounds import MIB, RING_READ_BATCH
from sidecar.protocol.ring import RingReader

TIMES = 200_000
EVENT = {
    "seq": 123456,
    "at": "2026-11-30T12:00:00.000Z",
    "run_id": "r1",
    "type": "update",
    "data": {"text": "x" * 95},
}
PAYLOAD = json.dumps(EVENT).encode()


def per_second(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(TIMES):
        step()
    return TIMES / (time.perf_counter() - start)


def reads_per_second(path: Path) -> float:
    with RingReader.open(path) as reader:
        count = 0
        start = time.perf_counter()
        while batch := reader.read(RING_READ_BATCH):
            count += len(batch)
        return count / (time.perf_counter() - start)


def seeks_per_second(path: Path) -> float:
    """Seeks to the newest record of a full ring: as far as a seek can be."""
    with RingReader.open(path) as reader:
        start = time.perf_counter()
        reader.seek(reader.stats().last_seq)
        return 1 / (time.perf_counter() - start)


def main() -> None:
    assert len(PAYLOAD) == 200
    rows = {
        "json.dumps": per_second(partial(json.dumps, EVENT)),
        "deque.append": per_second(partial(deque[bytes](maxlen=20_000).append, PAYLOAD)),
    }
    with tempfile.TemporaryDirectory() as directory:
        for mib in (1, 4):
            path = Path(directory, f"ring-{mib}")
            writer = RingWriter.open(path, mib * MIB)
            rows[f"append, {mib} MiB"] = per_second(partial(writer.append, PAYLOAD))
            rows[f"read, {mib} MiB"] = reads_per_second(path)
            rows[f"seek, {mib} MiB"] = seeks_per_second(path)
            writer.close()
    for name, rate in rows.items():
        ratio = rate / rows["json.dumps"]
        print(f"{name:14} {rate:10.0f}/s {1e6 / rate:9.2f} us {ratio:8.3f} x json.dumps")


if __name__ == "__main__":
    main()
