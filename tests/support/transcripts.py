"""What must be true of any transcript, whatever was killed while it was written."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import Any

from session_worker.demo_model.history import check_history

Json = dict[str, Any]


def effects(command: str) -> list[str]:
    return re.findall(r"echo (\S+) >> effects", command)


def texts(records: list[Json], role: str, run_id: str | None = None) -> list[str]:
    messages = [
        r["message"]
        for r in records
        if r["kind"] == "message" and run_id in (None, r["run_id"]) and r["message"]["role"] == role
    ]
    by_message = [[b["text"] for b in m["content"] if b["type"] == "text"] for m in messages]
    return ["".join(found) for found in by_message if found]


def check_messages(records: list[Json]) -> None:
    """The API would take the messages as they are: nothing is missing that must be made up."""
    messages = [record["message"] for record in records if record["kind"] == "message"]
    merged: list[Json] = []
    for message in messages:
        if merged and merged[-1]["role"] == message["role"] == "user":
            merged[-1]["content"] += message["content"]
        else:
            merged.append({**message, "content": [*message["content"]]})
    assert all(a["role"] != b["role"] for a, b in pairwise(merged))
    assert list(check_history({"messages": merged})) == []


def check_effects(records: list[Json], happened: list[str]) -> None:
    """No command ran twice, none before its intent was written, and none for nothing."""
    times = Counter(happened)
    intents = Counter(r["tool_use_id"] for r in records if r["kind"] == "tool_intent")
    blocks = [b for r in records if r["kind"] == "message" for b in r["message"]["content"]]
    failed = {b["tool_use_id"]: b.get("is_error") for b in blocks if b["type"] == "tool_result"}
    asked: Counter[str] = Counter()
    for call in (block for block in blocks if block["type"] == "tool_use"):
        for marker in effects(call["input"]["command"]):
            asked[marker] += 1
            assert times[marker] <= intents[call["id"]] <= 1, call
            assert times[marker] == 1 or failed[call["id"]], call
    assert set(asked.values()) <= {1}
    assert times.keys() <= asked.keys()
