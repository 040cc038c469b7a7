"""A worker that is killed after any record of its transcript: the next one goes on from there.

The transcript of a session that had a bit of everything is cut after each of its records, and in
the middle of each, which is all that a SIGKILL can leave. Workers run in this process.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from session_worker.http.app import build_app
from session_worker.rehearsal import specification
from session_worker.spec import SessionSpec
from session_worker.transcript import read
from session_worker.worker import serve
from tests.support.endpoint import Endpoint, run_request
from tests.support.processes import eventually
from tests.support.transcripts import check_effects, check_messages, effects, texts

Json = dict[str, Any]
WAIT = "until [ -e go ]; do sleep 0.01; done"
"""Only the first time: whoever comes back to it finds that it may go on."""


@asynccontextmanager
async def worker(place: Path) -> AsyncIterator[Endpoint]:
    """On what is in `place`; gone in the middle of things."""
    wire = specification(place) | {"mode": "bypass", "max_turns": 20, "max_tokens": 1000}
    wire["tool_env"] = {"PATH": os.environ["PATH"]}
    link, shim = socket.socketpair()
    socket_path = place / "endpoint"
    socket_path.unlink(missing_ok=True)
    with link, shim, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(socket_path))
        listener.listen()
        serving = asyncio.create_task(
            serve(SessionSpec.from_wire(wire), build_app(), link, [listener])
        )
        try:
            yield Endpoint({"session_id": "rehearsal", "endpoint": {"socket": str(socket_path)}})
        finally:
            serving.cancel()
            await asyncio.wait([serving])


async def until_idle(endpoint: Endpoint) -> None:
    def is_idle() -> bool:
        return endpoint.get("/healthz")[1]["run"] is None

    await asyncio.to_thread(eventually, is_idle, "every run has ended")


async def play(endpoint: Endpoint, place: Path) -> None:
    async def ask(text: str, **more: Any) -> str:
        body = run_request(text, "async") | more
        status, run = await asyncio.to_thread(endpoint.post, "/runs", body)
        assert status == 202, run
        return run["run_id"]

    async def happened(marker: str) -> None:
        def look() -> bool:
            return marker in (place / "effects").read_text()

        await asyncio.to_thread(eventually, look, f"{marker} has begun")

    (place / "effects").touch()
    await ask("run `echo m1a >> effects` and run `echo m1b >> effects`")
    await ask("run `echo m2a >> effects`, then run `echo m2b >> effects`")
    await ask("run `echo m3 >> effects; sleep 0.2 &`")
    cancelled = await ask(f"run `echo m4 >> effects; {WAIT}`")
    await ask("tell me about m5")
    await happened("m4")
    await asyncio.to_thread(endpoint.post, f"/runs/{cancelled}/cancel")
    await ask(f"run `echo m6 >> effects; {WAIT}`")
    await happened("m6")
    await ask("tell me about m7", steer=True)
    (place / "go").touch()
    await until_idle(endpoint)


def check(place: Path, markers: list[str]) -> None:
    records: list[Json] = list(read(place / "transcript"))
    prompts = {r["run_id"]: r["prompt"] for r in records if r["kind"] == "run_started"}
    results = {r["run_id"]: r["result"] for r in records if r["kind"] == "run_finished"}
    assert prompts.keys() == results.keys()
    assert {r["stop_reason"] for r in results.values()} <= {"final_answer", "cancelled"}
    for marker in markers:
        runs = [run_id for run_id, prompt in prompts.items() if marker in prompt]
        assert len(runs) <= 1, marker
        said = [text for text in texts(records, "user") if marker in text.partition("job-")[0]]
        over = [results[run_id]["stop_reason"] for run_id in runs]
        assert len(said) == len(runs) or (said == [] and over == ["cancelled"]), (marker, said)
    check_messages(records)
    check_effects(records, (place / "effects").read_text().split())


def done_in(records: list[Json]) -> list[str]:
    """Markers of the commands whose results are on record."""
    blocks = [b for r in records if r["kind"] == "message" for b in r["message"]["content"]]
    results = [b for b in blocks if b["type"] == "tool_result" and not b.get("is_error")]
    good = {result["tool_use_id"] for result in results}
    calls = [b for b in blocks if b["type"] == "tool_use" and b["id"] in good]
    return [marker for call in calls for marker in effects(call["input"]["command"])]


@pytest.mark.parametrize("torn", [False, pytest.param(True, marks=pytest.mark.soak)])
async def test_nothing_is_lost_or_done_twice_wherever_the_transcript_ends(
    tmp_path: Path, torn: bool
) -> None:
    async with worker(tmp_path) as endpoint:
        await play(endpoint, tmp_path)
    markers = ["m1a", "m2a", "m3", "m4", "m5", "m6", "m7", "m-last"]
    check(tmp_path, markers)
    lines = (tmp_path / "transcript").read_bytes().splitlines(keepends=True)
    for count, line in enumerate(lines):
        half = line[: len(line) // 2] if torn else b""
        (tmp_path / "ring").unlink()
        (tmp_path / "transcript").write_bytes(b"".join(lines[:count]) + half)
        done = done_in([json.loads(whole) for whole in lines[:count]])
        (tmp_path / "effects").write_text("".join(f"{marker}\n" for marker in done))
        async with worker(tmp_path) as endpoint:
            await until_idle(endpoint)
            run = await asyncio.to_thread(endpoint.prompt, "tell me about m-last")
            assert run["result"]["stop_reason"] == "final_answer"
        try:
            check(tmp_path, markers)
        except AssertionError as error:
            raise AssertionError(f"cut after {count} of {len(lines)} records") from error
