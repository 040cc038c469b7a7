"""Events per second through the assembler, beside parsing the same events with `json.loads`.

Run `python -m benchmarks.bench_assembler`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from session_worker.assembler import Assembler

DELTAS = 100_000
BLOCKS = 30_000
ROUNDS = 5
WORDS = "some words of "  # a delta of the API has three or four tokens
START: dict[str, Any] = {
    "type": "message_start",
    "message": {"id": "msg_1", "role": "assistant", "content": [], "usage": {"input_tokens": 9}},
}
END = [
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 99},
    },
    {"type": "message_stop"},
]


def block(index: int, start: dict[str, Any], deltas: list[dict[str, Any]]) -> Iterator[Any]:
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def text_delta() -> dict[str, Any]:
    return {"type": "text_delta", "text": WORDS}


def call(index: int, pieces: list[str]) -> Iterator[Any]:
    start: dict[str, Any] = {
        "type": "tool_use",
        "id": f"toolu_{index}",
        "name": "bash",
        "input": {},
    }
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block(index, start, deltas)


def streams() -> dict[str, list[dict[str, Any]]]:
    long_text = block(0, {"type": "text", "text": ""}, [text_delta() for _ in range(DELTAS)])
    long_call = call(0, ['{"command": "', *[WORDS] * DELTAS, '"}'])
    small: list[Any] = []
    for index in range(0, BLOCKS, 2):
        small += block(index, {"type": "text", "text": ""}, [text_delta()])
        small += call(index + 1, ['{"command": "ls"}'])
    bodies = {"long text": long_text, "long tool input": long_call, "small blocks": small}
    return {name: [START, *body, *END] for name, body in bodies.items()}


def parse(lines: list[str]) -> None:
    for line in lines:
        json.loads(line)


def assemble(events: list[dict[str, Any]]) -> None:
    assembler = Assembler()
    for event in events:
        assembler.feed(event)
    assembler.message()


def best(step: Any, argument: list[Any]) -> float:
    """Items per second of CPU time, in the fastest round: pure code does not wait."""
    seconds: list[float] = []
    for _ in range(ROUNDS):
        start = time.process_time()
        step(argument)
        seconds.append(time.process_time() - start)
    return len(argument) / min(seconds)


def main() -> None:
    for name, events in streams().items():
        parsed = best(parse, [json.dumps(event) for event in events])
        rate = best(assemble, events)
        print(
            f"{name:16} {rate:10.0f}/s {1e6 / rate:7.2f} us"
            f" {rate / parsed:7.2f} x json.loads ({parsed:.0f}/s)"
        )


if __name__ == "__main__":
    main()
