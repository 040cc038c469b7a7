"""Chaos, `make soak`: everything is killed at random under load, and nothing that was promised is
lost, doubled or left behind."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from session_worker.transcript import read
from sidecar.protocol.ring import Record, RingReader
from tests.support.chaos import Client, Follower, Killer, Resumer, acting, digest
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint
from tests.support.processes import eventually, of_home
from tests.support.transcripts import check_effects, check_messages, texts

SEED = "SIDECAR_CHAOS_SEED"
"""Chooses the prompts and the victims again; the kernel's part in it does not repeat."""
CHAOS_S = 120.0
SESSIONS = 8
KILL_PAUSE_S = 0.8
"""At most, between two kills: some of a session's shims live to see their sixth crash."""
RINGS = ((64 * 1024, 2.0), (4 * 1024 * 1024, 0.0))
"""A small one whose reader comes by too seldom, and the default one with a reader that stays."""

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
Json = dict[str, Any]


def test_nothing_is_lost_doubled_or_left_behind_when_everything_is_killed_at_random(
    own_daemon: Daemon, work: Path
) -> None:
    seed = int(os.environ.get(SEED) or random.randrange(1 << 32))
    print(f"seed {seed}")
    complaints: list[str] = []
    endpoints = [
        own_daemon.session(directory(work, n), ring_bytes=RINGS[n % len(RINGS)][0])
        for n in range(SESSIONS)
    ]
    clients = [Client(n, e, seed, complaints) for n, e in enumerate(endpoints)]
    followers = [
        Follower(n, e, RINGS[n % len(RINGS)][1], complaints) for n, e in enumerate(endpoints)
    ]
    resumer = Resumer(own_daemon.socket, {e.session_id for e in endpoints}, complaints)
    killer = Killer(own_daemon, random.Random(seed))
    with acting(*followers):
        with acting(resumer):
            with acting(*clients):
                until = time.monotonic() + CHAOS_S
                while time.monotonic() < until and not complaints:
                    time.sleep(killer.chance.uniform(0, KILL_PAUSE_S))
                    killer.strike()
            print(dict(killer.killed), dict(resumer.resumed))
            assert complaints == []
            for endpoint in endpoints:
                eventually(lambda e=endpoint: is_done(own_daemon, e), "every run has ended")
        check_processes(own_daemon)
        for n, endpoint in enumerate(endpoints):
            check_transcript(files_of(own_daemon, endpoint), clients[n], directory(work, n))
            check_events(own_daemon, endpoint, followers[n])
            check_status(own_daemon, endpoint, records_of(own_daemon, endpoint))
        for n, endpoint in enumerate(endpoints):
            endpoint.prompt("run `sleep 600 & sleep 600`", "async")
            if n % 2:
                psutil.Process(listed_as(own_daemon, endpoint)["shim_pid"]).kill()
            own_daemon.call("session.destroy", session_id=endpoint.session_id, grace_s=1)
        check_processes(own_daemon)
        assert list((own_daemon.home / "run" / "s").iterdir()) == []
    assert complaints == []
    assert set(killer.killed) == {"daemon", "zygote", "shim", "worker", "tool"}


def directory(work: Path, number: int) -> Path:
    path = work / str(number)
    path.mkdir(exist_ok=True)
    return path


def records_of(daemon: Daemon, endpoint: Endpoint) -> list[Json]:
    return list(read(files_of(daemon, endpoint) / "transcript.jsonl"))


def files_of(daemon: Daemon, endpoint: Endpoint) -> Path:
    return daemon.home / "state" / "sessions" / endpoint.session_id


def is_done(daemon: Daemon, endpoint: Endpoint) -> bool:
    info = daemon.call("session.status", session_id=endpoint.session_id)
    kinds = Counter(record["kind"] for record in records_of(daemon, endpoint))
    return info["state"] == "idle" and kinds["run_started"] == kinds["run_finished"]


# --- the truth -----------------------------------------------------------------------------


def check_transcript(files: Path, client: Client, cwd: Path) -> None:
    lines = (files / "transcript.jsonl").read_bytes().splitlines()
    records: list[Json] = [json.loads(line) for line in lines]
    assert [record["n"] for record in records] == list(range(1, len(records) + 1))
    incarnations = [r["incarnation"] for r in records if r["kind"] == "session"]
    assert all(a < b for a, b in pairwise(incarnations)), incarnations
    check_runs(records, client)
    check_messages(records)
    happened = cwd / "effects"
    check_effects(records, happened.read_text().splitlines() if happened.exists() else [])


def check_runs(records: list[Json], client: Client) -> None:
    """Each accepted prompt is one run, one user message and one result, which is the one shown."""
    prompts = {r["run_id"]: r["prompt"] for r in records if r["kind"] == "run_started"}
    results = {r["run_id"]: r["result"] for r in records if r["kind"] == "run_finished"}
    kinds = Counter(record["kind"] for record in records)
    assert kinds["run_started"] == kinds["run_finished"] == len(prompts) == len(results)
    accepted = {sent.run_id: sent for sent in client.sent if sent.run_id}
    assert accepted.keys() <= prompts.keys()
    for sent in client.sent:
        runs = [run_id for run_id, prompt in prompts.items() if sent.marker in prompt]
        assert runs == [sent.run_id] if sent.run_id else len(runs) <= 1, sent
        # a later prompt may go with the news that a job of this one has ended
        said = [text for text in texts(records, "user") if sent.marker in text.partition("job-")[0]]
        for run_id in runs:
            reason = results[run_id]["stop_reason"]
            assert reason in ("final_answer", "cancelled")
            assert sent.cancelled or reason == "final_answer", results[run_id]
            assert len(said) == 1 or (len(said) == 0 and reason == "cancelled"), (sent, said)
        if sent.seen:
            assert sent.seen["result"] == results[sent.run_id]
            shown = [part["content"] for m in sent.seen["output"] for part in m["parts"]]
            assert shown == texts(records, "assistant", sent.run_id)


# --- what is told of it --------------------------------------------------------------------


def check_events(daemon: Daemon, endpoint: Endpoint, follower: Follower) -> None:
    """A follower has seen what the ring holds, and no run ended twice. That every number came
    once, or in a gap, it has seen to itself; a number minted twice it cannot see, as its cursor
    is behind both. The ring's own reader can, if it reads all in one go."""
    status = daemon.call("session.status", session_id=endpoint.session_id)
    newest = status["ring"]["last_seq"]
    eventually(lambda: follower.last_seq == newest, "the follower is up to date")
    with RingReader.open(files_of(daemon, endpoint) / "ring") as reader:
        held = [item for item in reader.read(newest) if isinstance(item, Record)]
        assert reader.read(limit=1) == []
    assert held[-1].seq == newest
    for event in (json.loads(record.payload) for record in held):
        assert follower.seen.get(event["seq"]) == digest(event), event
    assert set(follower.finished.values()) <= {0, 1}


def check_status(daemon: Daemon, endpoint: Endpoint, records: list[Json]) -> None:
    """What the daemon says of a session is what the kernel, the worker and the transcript say."""
    status = daemon.call("session.status", session_id=endpoint.session_id)
    listed = listed_as(daemon, endpoint)
    assert listed | {"limits": status["limits"]} == {name: status[name] for name in listed}
    assert (status["state"], status["wanted"], status["run"]) == ("idle", "up", None)
    health = endpoint.get("/healthz")[1]
    for name in ("session_id", "pid", "incarnation", "state", "run"):
        assert health[name] == status[name]
    worker = psutil.Process(status["pid"])
    assert (worker.name(), worker.ppid()) == ("sidecar-worker", status["shim_pid"])
    assert psutil.Process(status["shim_pid"]).name() == "sidecar-shim"
    assert status["resources"]["processes"] == 2 + len(background(status))
    results = [r["result"] for r in records if r["kind"] == "run_finished"]
    assert status["last_result"] == results[-1]
    calls = [r for r in records if r["kind"] == "api_call"]
    assert status["usage"]["output_tokens"] == sum(call["output"] for call in calls)


def check_processes(daemon: Daemon) -> None:
    """Of this home run the daemon, its zygote, and for each live session a shim, its worker, and
    what that very worker has put into the background."""
    eventually(lambda: daemon.call("sidecar.status")["zygote"]["ready"], "the zygote is back")
    try:
        eventually(lambda: unaccounted(daemon) == [], "every process is accounted for")
    finally:
        print("unaccounted for:", unaccounted(daemon))


def unaccounted(daemon: Daemon) -> list[psutil.Process]:
    status = daemon.call("sidecar.status")
    known = {status["pid"], status["zygote"]["pid"]}
    for session in sessions(daemon):
        if session["pid"]:
            known |= {session["pid"], session["shim_pid"], *background(session)}
    return [process for process in of_home(daemon.home) if process.pid not in known]


def background(session: dict[str, Any]) -> set[int]:
    """A dead worker's are older than the present one."""
    born = psutil.Process(session["pid"]).create_time()
    below = psutil.Process(session["shim_pid"]).children()
    return {p.pid for p in below if p.name() == "sleep" and p.create_time() >= born}


def sessions(daemon: Daemon) -> list[dict[str, Any]]:
    return daemon.call("session.list", all=True)["sessions"]


def listed_as(daemon: Daemon, endpoint: Endpoint) -> Json:
    (info,) = (s for s in sessions(daemon) if s["session_id"] == endpoint.session_id)
    return info
