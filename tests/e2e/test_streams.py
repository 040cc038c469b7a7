"""Events reach every reader once or as an exact gap, and no reader reaches the agent."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.control import CallFailed, Control
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint, run_request
from tests.support.processes import eventually

MIB = 1024 * 1024
SMALL_RING = 64 * 1024


def numbers(events: list[dict[str, Any]]) -> list[int]:
    return [event["seq"] for event in events if "seq" in event]


def flood(endpoint: Endpoint) -> dict[str, Any]:
    """A run whose text is several times the small ring."""
    return endpoint.prompt("!big 20k")


def test_a_reader_that_returns_with_its_cursor_sees_the_rest_once(
    daemon: Daemon, work: Path
) -> None:
    endpoint = daemon.session(work)
    endpoint.prompt("list the files here")
    everything = endpoint.events()
    half = everything[len(everything) // 2]["seq"]
    path = f"/sessions/{endpoint.session_id}/events?follow=0"
    with endpoint.stream("GET", path, **{"Last-Event-ID": str(half)}) as stream:
        rest = list(stream)
    assert rest == everything[len(everything) // 2 + 1 :]
    assert endpoint.events(after=half) == rest
    assert endpoint.events(after=everything[-1]["seq"]) == []


def test_a_follower_sees_old_and_new_events_without_a_seam(daemon: Daemon, work: Path) -> None:
    endpoint = daemon.session(work)
    endpoint.prompt("list the files here")
    seen: list[dict[str, Any]] = []
    with endpoint.stream("GET", f"/sessions/{endpoint.session_id}/events") as stream:
        second = endpoint.prompt("list the files here", "async")["run_id"]
        for event in stream:
            seen.append(event)
            if event["type"] == "run_finished" and event["run_id"] == second:
                break
    assert numbers(seen) == list(range(1, len(seen) + 1))


def test_events_that_fell_out_of_the_ring_are_told_as_an_exact_gap(
    daemon: Daemon, work: Path
) -> None:
    endpoint = daemon.session(work, ring_bytes=SMALL_RING)
    flood(endpoint)
    first, *rest = endpoint.events(after=3)
    assert first["from"] == 4
    assert rest[0]["seq"] == first["to"] + 1
    assert numbers(rest) == list(range(first["to"] + 1, rest[-1]["seq"] + 1))
    ring = daemon.call("session.status", session_id=endpoint.session_id)["ring"]
    assert ring["dropped_events"] == ring["first_seq"] - 1 > 0
    assert ring["used_bytes"] <= ring["capacity_bytes"] == SMALL_RING
    assert ring["dropped_bytes"] > 0


def test_a_stream_of_a_run_that_overruns_the_ring_still_ends_with_its_run(
    daemon: Daemon, work: Path
) -> None:
    endpoint = daemon.session(work, ring_bytes=SMALL_RING)
    with endpoint.stream("POST", "/runs", run_request("!big 20k", "stream")) as stream:
        events = list(stream)
    assert events[-1]["type"] == "run.completed"
    assert len(events[-1]["run"]["output"][0]["parts"][0]["content"]) >= 20_000


def test_twenty_readers_that_never_read_do_not_slow_the_agent_or_grow_its_memory(
    daemon: Daemon, work: Path
) -> None:
    endpoint = daemon.session(work)
    flood(endpoint)
    worker = psutil.Process(endpoint.get("/healthz")[1]["pid"])
    path = f"GET /sessions/{endpoint.session_id}/events HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    before = worker.memory_info().rss
    readers = []
    for _ in range(20):
        reader = socket.socket(socket.AF_UNIX)
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect(endpoint.path)
        reader.sendall(path)
        readers.append(reader)
    for _ in range(5):
        assert flood(endpoint)["status"] == "completed"
    grown = worker.memory_info().rss - before
    for reader in readers:
        reader.close()
    assert grown < 64 * MIB, f"{grown / MIB:.0f} MiB"


def test_output_is_read_from_the_ring_by_cursor_and_waits_for_more(
    daemon: Daemon, work: Path
) -> None:
    endpoint = daemon.session(work)
    endpoint.prompt("list the files here")
    sid = endpoint.session_id
    page = daemon.call("session.output", session_id=sid, limit=5)
    assert numbers(page["events"]) == [1, 2, 3, 4, 5]
    assert (page["last_seq"], page["gap"]) == (5, None)
    rest = daemon.call("session.output", session_id=sid, after=5)
    assert rest["events"] == endpoint.events(after=5)
    control = Control(daemon.socket)
    params = {"session_id": sid, "after": rest["last_seq"], "wait_s": 30}
    control.send({"jsonrpc": "2.0", "id": 1, "method": "session.output", "params": params})
    endpoint.prompt("list the files here", "async")
    assert control.receive()["result"]["events"][0]["seq"] == rest["last_seq"] + 1
    control.close()
    with pytest.raises(CallFailed) as failure:
        daemon.call("session.output", session_id=sid, after=10**9)
    assert failure.value.code == "invalid_params"


def test_subscribers_are_notified_and_unsubscribing_ends_it(daemon: Daemon, work: Path) -> None:
    endpoint = daemon.session(work)
    control = Control(daemon.socket)
    sub = control.call("session.subscribe", session_id=endpoint.session_id)["subscription"]
    endpoint.prompt("list the files here")
    expected = endpoint.events()
    got = [control.notification() for _ in expected]
    assert {note["method"] for note in got} == {"session.event"}
    assert {note["params"]["subscription"] for note in got} == {sub}
    assert [note["params"]["event"] for note in got] == expected
    assert control.call("session.unsubscribe", subscription=sub) == {}
    endpoint.prompt("list the files here")
    assert control.call("sidecar.ping") == {}
    assert control.notifications == []
    control.close()


def test_a_late_subscriber_gets_a_gap_event_then_the_rest(daemon: Daemon, work: Path) -> None:
    endpoint = daemon.session(work, ring_bytes=SMALL_RING)
    flood(endpoint)
    control = Control(daemon.socket)
    control.call("session.subscribe", session_id=endpoint.session_id)
    gap = control.notification()["params"]["event"]
    assert gap["type"] == "gap"
    assert gap["data"]["from"] == 1
    assert control.notification()["params"]["event"]["seq"] == gap["data"]["to"] + 1
    control.close()


def test_a_subscriber_that_never_reads_is_dropped_and_nobody_else_notices(
    daemon: Daemon, work: Path
) -> None:
    endpoint = daemon.session(work)
    deaf = socket.socket(socket.AF_UNIX)
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.connect(str(daemon.socket))
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "session.subscribe",
        "params": {"session_id": endpoint.session_id},
    }
    deaf.sendall(json.dumps(request).encode() + b"\n")
    for _ in range(4):
        flood(endpoint)
    assert daemon.call("sidecar.ping") == {}
    deaf.close()


def test_watchers_of_the_daemon_are_told_of_every_session(daemon: Daemon, work: Path) -> None:
    control = Control(daemon.socket)
    control.call("sidecar.subscribe")
    sid = daemon.create(work)["session_id"]
    daemon.call("session.destroy", session_id=sid)
    states = []
    while "exited" not in states:
        note = control.notification()
        assert note["method"] == "session.changed"
        assert note["params"]["session_id"] == sid
        states.append(note["params"]["state"])
    assert states[0] in ("starting", "idle")
    control.close()


def test_two_hundred_megabytes_of_tool_output_stay_bounded_everywhere(
    daemon: Daemon, work: Path
) -> None:
    endpoint = daemon.session(work, ring_bytes=SMALL_RING)
    worker = psutil.Process(endpoint.get("/healthz")[1]["pid"])
    before = worker.memory_info().rss
    run = endpoint.prompt("run `echo HEAD; yes 0123456789abcdef | head -c 200000000; echo TAIL`")
    assert run["status"] == "completed"
    assert worker.memory_info().rss - before < 64 * MIB
    spill = daemon.home / "state" / "sessions" / endpoint.session_id / "spill"
    (kept,) = spill.iterdir()
    assert kept.stat().st_size <= 64 * MIB
    result = next(
        r["message"]["content"][0]["content"]
        for r in endpoint.get(f"/sessions/{endpoint.session_id}/transcript")[1]["records"]
        if r["kind"] == "message" and r["message"]["content"][0]["type"] == "tool_result"
    )
    assert result.startswith("HEAD\n")
    assert str(kept) in result
    assert len(result) < 40_000


def test_a_client_that_leaves_in_the_middle_of_its_stream_ends_no_run(
    daemon: Daemon, work: Path
) -> None:
    endpoint = daemon.session(work)
    body = run_request("run `until [ -e go ]; do sleep 0.05; done; echo finished`", "stream")
    with endpoint.stream("POST", "/runs", body) as stream:
        run_id = next(stream)["run"]["run_id"]
    (work / "go").touch()
    run = eventually(
        lambda: (r := endpoint.get(f"/runs/{run_id}")[1])["finished_at"] and r, "it ends"
    )
    assert run["status"] == "completed"
    assert "finished" in run["result"]["final_text"]


def test_an_event_larger_than_a_quarter_of_the_ring_is_cut_and_says_so(
    daemon: Daemon, work: Path
) -> None:
    endpoint = daemon.session(work, ring_bytes=SMALL_RING)
    endpoint.prompt("x" * 100_000)
    cut = [event for event in endpoint.events() if event.get("truncated")]
    assert cut
    assert cut[0]["whole"] == "transcript"
    assert cut[0]["data"]["sessionUpdate"] == "user_message_chunk"
    records = endpoint.get(f"/sessions/{endpoint.session_id}/transcript")[1]["records"]
    assert any("x" * 100_000 in json.dumps(record) for record in records)


def test_a_made_up_session_id_of_an_acp_client_becomes_an_alias(daemon: Daemon, work: Path) -> None:
    endpoint = daemon.session(work)
    made_up = "11111111-2222-4333-8444-555555555555"
    assert endpoint.get(f"/sessions/{made_up}")[0] == 404
    status, run = endpoint.post("/runs", run_request("hello") | {"session_id": made_up})
    assert (status, run["session_id"]) == (200, made_up)
    assert endpoint.get(f"/session/{made_up}")[1] == {"id": made_up, "history": [], "state": None}


def test_the_agents_routes_and_the_runs_events_answer(daemon: Daemon, work: Path) -> None:
    endpoint = daemon.session(work)
    assert endpoint.get("/ping") == (200, {})
    assert endpoint.get("/agents")[1]["agents"][0]["name"] == "sidecar"
    types = endpoint.get("/agents/sidecar")[1]["input_content_types"]
    assert {"text/plain", "image/png"} <= set(types)
    run = endpoint.prompt("list the files here")
    events = endpoint.get(f"/runs/{run['run_id']}/events")[1]["events"]
    assert [events[0]["type"], events[-1]["type"]] == ["run.created", "run.completed"]
    assert endpoint.post(f"/runs/{run['run_id']}", {"await_resume": {}})[0] == 403
    assert endpoint.get(f"/runs/{run['run_id']}")[1]["status"] == "completed"
    health = endpoint.get("/healthz")[1]
    assert health["session_id"] == endpoint.session_id
    assert Path(f"/proc/{health['pid']}").exists()


def test_streams_of_a_destroyed_session_end_with_its_last_events(
    daemon: Daemon, work: Path
) -> None:
    endpoint = daemon.session(work)
    body = run_request("run `touch up; sleep 60`", "stream")
    with (
        endpoint.stream("GET", f"/sessions/{endpoint.session_id}/events") as session,
        endpoint.stream("POST", "/runs", body) as run,
    ):
        eventually((work / "up").exists, "the tool runs")
        daemon.call("session.destroy", session_id=endpoint.session_id)
        assert list(run)[-1]["type"] == "run.cancelled"
        assert [e["type"] for e in session][-2:] == ["run_finished", "state"]
