"""What the model calls of a session hold and cost, what of it is cached, and what it may use."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model import ApiError, Fault, Received, Reply, text, thinking, tool_use
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint
from tests.support.model_server import model_server
from tests.support.processes import eventually

MARK = re.compile(rb',"cache_control":\{[^}]*\}')
PRICES = '[prices."house-model"]\ninput = 1.0\noutput = 1000.0\n'


def bash(command: str) -> dict[str, Any]:
    return tool_use("bash", {"command": command})


def context(endpoint: Endpoint) -> dict[str, Any]:
    status, answer = endpoint.get(f"/sessions/{endpoint.session_id}/context")
    assert status == 200, answer
    return answer


def crash(daemon: Daemon, endpoint: Endpoint) -> None:
    """SIGKILL the worker; what is asked next waits for another one."""
    before = daemon.call("session.status", session_id=endpoint.session_id)
    os.kill(before["pid"], signal.SIGKILL)
    eventually(lambda: endpoint.get("/healthz")[1]["pid"] != before["pid"], "another worker")


def frozen(request: Received) -> bytes:
    """Tools, system and messages as they were sent, up to the end of the last message, without
    the marks that wander along."""
    raw = request.raw[request.raw.index(b'"tools":') :]
    return MARK.sub(b"", raw).removesuffix(b"]}")


def marks(request: Received) -> list[tuple[str, int, dict[str, Any]]]:
    """Each breakpoint with where it is: part of the request or number of the message, and block."""
    body = request.body
    parts = {"tools": body["tools"], "system": body["system"]}
    parts |= {str(n): message["content"] for n, message in enumerate(body["messages"])}
    return [
        (name, m, block["cache_control"])
        for name, blocks in parts.items()
        for m, block in enumerate(blocks)
        if "cache_control" in block
    ]


def test_each_request_begins_with_the_bytes_of_the_one_before_also_after_a_restart(
    daemon: Daemon, work: Path
) -> None:
    script = [
        Reply([thinking("hm"), text("Both – “ü”."), bash("echo one"), bash("exit 3")]),
        Reply([text("first")]),
        Reply([bash("printf 'half \\xff'")]),
        Reply([bash("pwd")]),
        Reply([text("second")]),
        Reply([text("third")]),
    ]
    with model_server(script) as model:
        endpoint = model.session(daemon, work, system="Be brief.")
        endpoint.prompt("go")
        crash(daemon, endpoint)
        endpoint.prompt("go on ✓")
        crash(daemon, endpoint)
        endpoint.prompt("and again")
        sent = [frozen(request) for request in model.requests]
        for before, after in pairwise(sent):
            assert after.startswith(before)
        calls = context(endpoint)["calls"]
    reads = [call["cache_read"] for call in calls]
    assert reads[0] == 0
    assert reads == sorted(set(reads)), "each call reads what the one before has written"
    for before, after in pairwise(calls):
        assert after["cache_read"] == before["cache_read"] + cached(before)
    assert calls[0]["cache_write_1h"] > 0
    assert [call["cache_write_1h"] for call in calls[1:]] == [0] * 5


def cached(call: dict[str, Any]) -> int:
    return call["cache_write_5m"] + call["cache_write_1h"]


def test_breakpoints_are_on_the_system_prompt_and_the_last_two_messages_of_the_user(
    daemon: Daemon, work: Path
) -> None:
    many = Reply([bash(f"echo {n}") for n in range(20)])
    with model_server([many, Reply([text("ok")]), Reply([text("ok")])]) as model:
        endpoint = model.session(daemon, work)
        endpoint.prompt("go")
        endpoint.prompt("again")
        short, long = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
        system = ("system", 0, long)
        assert [marks(request) for request in model.requests] == [
            [system, ("0", 0, short)],
            [system, ("0", 0, short), ("2", 15, short), ("2", 19, short)],
            [system, ("2", 19, short), ("4", 0, short)],
        ]


def test_the_demo_models_cache_is_read_more_with_every_call(daemon: Daemon, work: Path) -> None:
    endpoint = daemon.session(work)
    for _ in range(3):
        endpoint.prompt("list the files here")
    calls = context(endpoint)["calls"]
    reads = [call["cache_read"] for call in calls]
    assert len(reads) >= 6
    assert reads == sorted(set(reads))
    assert {call["cost_usd"] for call in calls} == {None}, "nobody sells it"


def test_every_call_is_on_record_with_what_filled_its_context(daemon: Daemon, work: Path) -> None:
    script = [Reply([text("half a sen")], fault=Fault("cut")), Reply([bash("true")])]
    with model_server([*script, Reply([text("ok")]), Reply([text("fine")])]) as model:
        endpoint = model.session(daemon, work)
        endpoint.prompt("go")
        eventually(
            lambda: any("count_tokens" in r.path for r in model.model.requests), "it was counted"
        )
        run = endpoint.prompt("again")
        seen = context(endpoint)
    calls = seen["calls"]
    assert [(c["attempt"], c["stop_reason"]) for c in calls] == [
        (1, None),
        (2, "tool_use"),
        (1, "end_turn"),
        (1, "end_turn"),
    ]
    for call in calls:
        fresh_and_cached = call["fresh"] + call["cache_read"] + cached(call)
        assert call["total_in"] == fresh_and_cached
        assert call["prefix_tokens"] + call["message_tokens"] == call["total_in"]
        assert (call["window"], call["model"]) == (1_000_000, "claude-sonnet-5-5")
        assert call["ms"] >= call["ttfb_ms"] >= 0
        assert call["cost_usd"] == pytest.approx(
            (
                2 * call["fresh"]
                + 0.1 * call["cache_read"]
                + 2.5 * call["cache_write_5m"]
                + 4 * call["cache_write_1h"]
                + 10 * call["output"]
            )
            / 1e6
        )
    assert calls[-1]["message_tokens"] > calls[1]["message_tokens"]
    last = calls[-1]["total_in"] + calls[-1]["output"]
    assert (seen["context_tokens"], seen["context_window"]) == (last, 1_000_000)
    assert run["result"]["cost_usd"] == calls[-1]["cost_usd"]
    check_events(endpoint, calls, seen["context_tokens"])
    usage = daemon.call("session.status", session_id=endpoint.session_id)["usage"]
    assert usage["cost_usd"] == pytest.approx(sum(call["cost_usd"] for call in calls))
    assert usage["output_tokens"] == sum(call["output"] for call in calls)


def check_events(endpoint: Endpoint, calls: list[dict[str, Any]], now: int) -> None:
    events = endpoint.events()
    told = [event["data"] for event in events if event["type"] == "api_call"]
    assert told == [{k: call[k] for k in told[0]} for call in calls]
    updates = [e["data"] for e in events if e["type"] == "update"]
    gauges = [u for u in updates if u["sessionUpdate"] == "usage_update"]
    assert len(gauges) == len(calls)
    assert (gauges[-1]["used"], gauges[-1]["size"]) == (now, 1_000_000)
    cost = gauges[-1]["cost"]
    assert cost["amount"] == pytest.approx(sum(call["cost_usd"] for call in calls))
    assert cost["currency"] == "USD"


def test_the_prefix_is_counted_by_the_api_and_the_same_in_every_call_afterwards(
    daemon: Daemon, work: Path
) -> None:
    with model_server([Reply([text("ok")])] * 4) as model:
        endpoint = model.session(daemon, work)
        endpoint.prompt("go")
        eventually(
            lambda: any("count_tokens" in r.path for r in model.model.requests), "it was counted"
        )
        for _ in range(2):
            endpoint.prompt("again")
        crash(daemon, endpoint)
        endpoint.prompt("and again")
        counted = [r.body for r in model.model.requests if "count_tokens" in r.path]
        first = model.requests[0].body
        calls = context(endpoint)["calls"]
    plain = json.loads(MARK.sub(b"", json.dumps(counted[0], separators=(",", ":")).encode()))
    assert (plain["tools"], counted[0]["system"]) == (first["tools"], first["system"])
    assert len({call["prefix_tokens"] for call in calls[1:3]}) == 1
    size = len(json.dumps([first["system"], first["tools"]]))
    assert calls[2]["prefix_tokens"] == pytest.approx(size / 4, rel=0.1)


def test_of_an_unknown_model_neither_cost_nor_window_is_made_up(daemon: Daemon, work: Path) -> None:
    with model_server([Reply([text("ok")], usage={"input_tokens": 5_000_000})] * 2) as model:
        endpoint = model.session(daemon, work, model="house-model")
        assert endpoint.prompt("go")["result"]["cost_usd"] is None
        assert endpoint.prompt("again")["status"] == "completed"
        seen = context(endpoint)
        assert marks(model.requests[0]) == []
    assert [(c["cost_usd"], c["window"]) for c in seen["calls"]] == [(None, None)] * 2
    assert seen["context_window"] is None
    usage = daemon.call("session.status", session_id=endpoint.session_id)["usage"]
    assert usage["cost_usd"] is None


def test_a_broken_usage_of_a_server_costs_no_answer(daemon: Daemon, work: Path) -> None:
    odd = {"iterations": "many", "server_tool_use": [], "cache_creation": {"x": None}}
    with model_server([Reply([text("ok")], usage=odd)]) as model:
        assert model.session(daemon, work).prompt("go")["result"]["final_text"] == "ok"


@pytest.mark.soak
def test_budgets_hold_across_restarts_of_worker_and_daemon_and_resume(
    own_daemon: Daemon, work: Path
) -> None:
    large = Reply([text("ok")], usage={"input_tokens": 30_000})
    with model_server([large] * 3) as model:
        limits = {"tokens": 90_000}
        endpoint = model.session(own_daemon, work, limits=limits)
        status = own_daemon.call("session.status", session_id=endpoint.session_id)
        assert status["limits"] == limits | {"enforced_by": {"tokens": "worker"}}
        assert endpoint.prompt("go")["result"]["stop_reason"] == "final_answer"
        crash(own_daemon, endpoint)
        assert endpoint.prompt("go")["result"]["stop_reason"] == "final_answer"
        with a_price_being_named(own_daemon, work):
            own_daemon.kill()
            (own_daemon.home / "config.toml").write_text(PRICES)
            own_daemon.start()
            assert endpoint.prompt("go")["result"]["stop_reason"] == "final_answer"
            check_spent(endpoint, "90000 tokens")
        own_daemon.call("session.destroy", session_id=endpoint.session_id)
        own_daemon.call("session.resume", session_id=endpoint.session_id, env=model.env)
        check_spent(endpoint, "90000 tokens")
        assert len(model.requests) == 3


@contextmanager
def a_price_being_named(daemon: Daemon, work: Path) -> Iterator[None]:
    """A cost budget without a price refuses, until the config that is written inside names one."""
    broken = Reply([text("half of")], usage={"input_tokens": 0, "output_tokens": 500})
    answer = Reply([text("ok")], usage={"input_tokens": 1_000_000, "output_tokens": 1_000})
    with model_server([broken, ApiError(403, "no"), answer]) as model:
        limits = {"cost_usd": 2.5}
        endpoint = model.session(daemon, work, model="house-model", limits=limits)
        status = daemon.call("session.status", session_id=endpoint.session_id)
        assert status["limits"]["enforced_by"] == {"cost_usd": "worker"}
        check_spent(endpoint, '[prices."model"] in config.toml')
        assert model.requests == []
        yield
        daemon.call("session.destroy", session_id=endpoint.session_id)
        daemon.call("session.resume", session_id=endpoint.session_id, env=model.env)
        assert endpoint.prompt("go")["result"]["cost_usd"] == pytest.approx(0.5)
        assert endpoint.prompt("go")["status"] == "failed"
        assert endpoint.prompt("go")["result"]["cost_usd"] == pytest.approx(2.0)
        crash(daemon, endpoint)
        check_spent(endpoint, "2.5000 of the 2.5 dollars")


def check_spent(endpoint: Endpoint, limit: str) -> None:
    result = endpoint.prompt("more")["result"]
    assert (result["stop_reason"], result["turns"] <= 1) == ("budget", True)
    assert limit in result["error"]["message"]


def test_a_budget_ends_a_run_between_two_calls_and_its_tools_have_answers(
    daemon: Daemon, work: Path
) -> None:
    with model_server([Reply([bash("touch ran")], usage={"output_tokens": 700})]) as model:
        endpoint = model.session(daemon, work, limits={"tokens": 700})
        result = endpoint.prompt("go")["result"]
        assert (result["stop_reason"], result["tool_calls"]) == ("budget", 1)
        assert (work / "ran").exists()
        check_spent(endpoint, "700 tokens")
        records = endpoint.get(f"/sessions/{endpoint.session_id}/transcript")[1]["records"]
    last = [record["message"] for record in records if record["kind"] == "message"]
    assert last[2]["content"][0]["type"] == "tool_result"
