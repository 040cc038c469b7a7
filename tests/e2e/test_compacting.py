"""A conversation that outgrows the model's window goes on behind a summary of itself.

The scripted model claims the tokens that make a context full; what is sent is small.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from session_worker.compaction import BETA
from session_worker.demo_model import ApiError, Fault, Received, Reply, text, thinking, tool_use
from sidecar.protocol import bounds
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint
from tests.support.model_server import ModelServer, model_server
from tests.support.processes import eventually

LONG = "long words " * 5_000
"""Two of them are more than what is kept word for word, so that a summary gains something."""
CACHED = ("cache_read_input_tokens", "cache_creation_input_tokens")
FULL = {"input_tokens": 900_000, **dict.fromkeys(CACHED, 0)}
"""Over 85 % of the room that the default model's window leaves."""
SUMMARY = Reply([thinking("let me see"), text("## Goal\nGo far.")])
TOO_LONG = ApiError(400, "prompt is too long: 1000001 tokens > 1000000 maximum")


def bash(command: str) -> dict[str, Any]:
    return tool_use("bash", {"command": command})


def talked(endpoint: Endpoint, prompts: int = 2) -> None:
    """So many long prompts, each with a short answer of the script."""
    for n in range(prompts):
        run = endpoint.prompt(f"{n} {LONG}")
        assert run["status"] == "completed", run


def answers(count: int, **more: Any) -> list[Reply]:
    return [Reply([text(f"answer {n}")], **more) for n in range(count)]


def compact(endpoint: Endpoint, body: Any = None) -> dict[str, Any]:
    status, answer = endpoint.post(f"/sessions/{endpoint.session_id}/compact", body or {})
    assert status == 200, answer
    return answer["result"]


def crash(daemon: Daemon, endpoint: Endpoint) -> None:
    before = daemon.call("session.status", session_id=endpoint.session_id)
    os.kill(before["pid"], signal.SIGKILL)
    eventually(lambda: endpoint.get("/healthz")[1]["pid"] != before["pid"], "another worker")


def records(endpoint: Endpoint, kind: str) -> list[dict[str, Any]]:
    found = endpoint.get(f"/sessions/{endpoint.session_id}/transcript")[1]["records"]
    return [record for record in found if record["kind"] == kind]


def notices(endpoint: Endpoint, about: str) -> list[str]:
    told = [e["data"]["title"] for e in endpoint.events() if e["type"] == "notice"]
    return [title for title in told if about in title]


def asks_for_summary(request: Received) -> bool:
    return "Write a summary of this conversation" in request.body["messages"][-1]["content"][
        -1
    ].get("text", "")


def begins_with_summary(request: Received) -> bool:
    return "Go far." in request.body["messages"][0]["content"][0].get("text", "")


def unmarked(message: dict[str, Any]) -> dict[str, Any]:
    content = [{k: v for k, v in b.items() if k != "cache_control"} for b in message["content"]]
    return {**message, "content": content}


def test_a_full_context_is_compacted_before_the_next_call_for_all_to_see(
    daemon: Daemon, work: Path
) -> None:
    full = Reply([text("answer 2")], usage=FULL)
    with model_server([*answers(2), full, SUMMARY, *answers(2)]) as model:
        endpoint = model.session(daemon, work)
        talked(endpoint, 2)
        endpoint.prompt("nearly full")
        before = records(endpoint, "message")
        assert endpoint.prompt("go on")["result"]["final_text"] == "answer 0"
        asked, after = model.requests[3], model.requests[4]
        check_question(asked, model.requests[2])
        assert begins_with_summary(after)
        said = [b.get("text") for m in after.body["messages"] for b in m["content"]][1:]
        assert said == [f"1 {LONG}", "answer 1", "nearly full", "answer 2", "go on"]
        assert records(endpoint, "message")[: len(before)] == before, "nothing is taken back"
        (told,) = notices(endpoint, "Compacted")
        assert "900,0" in told
        stops = [call["stop_reason"] for call in records(endpoint, "api_call")]
        assert stops == ["end_turn"] * 3 + ["compaction", "end_turn"]
        gauges = [e["data"] for e in endpoint.events() if e["type"] == "update"]
        used = [u["used"] for u in gauges if u["sessionUpdate"] == "usage_update"]
        assert used[2] > used[4] > used[5], "full, compacted, counted"
        crash(daemon, endpoint)
        assert endpoint.prompt("and on")["status"] == "completed"
        kept = [unmarked(m) for m in after.body["messages"]]
        assert [unmarked(m) for m in model.requests[5].body["messages"][: len(kept)]] == kept


def check_question(asked: Received, before: Received) -> None:
    """It has the same prefix, of which the cache knows all but the question."""
    assert asks_for_summary(asked)
    for name in ("system", "tools", "model"):
        assert asked.body[name] == before.body[name]
    sent = [unmarked(message) for message in before.body["messages"]]
    prefix = [unmarked(message) for message in asked.body["messages"][:-1]]
    assert prefix == sent[: len(prefix)]
    assert "tool_choice" not in asked.body


def test_a_long_run_is_compacted_between_its_calls_and_no_result_is_parted_from_its_call(
    daemon: Daemon, work: Path
) -> None:
    looks = [Reply([thinking(f"look {n}"), bash(f"seq {n} 9000")]) for n in range(4)]
    last = Reply([bash("true"), bash("echo two")], usage=FULL)
    with model_server([*looks, last, SUMMARY, *answers(1)]) as model:
        endpoint = model.session(daemon, work)
        assert endpoint.prompt("count to the end")["result"]["tool_calls"] == 6
        after = model.requests[6].body["messages"]
    assert after[0]["content"][1]["text"] == "count to the end", "what it works at, word for word"
    assert after[1]["role"] == "assistant"
    assert [block["type"] for block in after[-1]["content"]] == ["tool_result"] * 2
    assert len(after) >= 1 + 2 * bounds.COMPACTION_KEEP_TURNS


def test_an_overflow_is_compacted_once_and_a_second_one_ends_the_run(
    daemon: Daemon, work: Path
) -> None:
    script = [*answers(2), TOO_LONG, SUMMARY, *answers(1), TOO_LONG, SUMMARY, TOO_LONG]
    with model_server([*script, *answers(1)]) as model:
        endpoint = model.session(daemon, work)
        talked(endpoint, 2)
        assert endpoint.prompt("go on")["result"]["final_text"] == "answer 0"
        assert begins_with_summary(model.requests[4])
        result = endpoint.prompt(LONG)["result"]
        assert result["stop_reason"] == "context_limit"
        assert endpoint.prompt("next")["status"] == "completed"
        retries = [e["data"] for e in endpoint.events() if e["type"] == "retry"]
        assert [r["reason"] for r in retries] == ["the context is full"] * 2


def test_by_hand_it_is_compacted_with_attention_to_what_the_user_cares_about(
    daemon: Daemon, work: Path
) -> None:
    with model_server([*answers(3), SUMMARY, *answers(1), SUMMARY]) as model:
        endpoint = model.session(daemon, work)
        talked(endpoint, 3)
        result = compact(endpoint, {"focus": "the blue files"})
        assert result["stop_reason"] == "final_answer"
        assert result["final_text"].startswith("Compacted: ")
        assert result["usage"]["output_tokens"] > 0
        question = model.requests[3].body["messages"][-1]["content"][-1]["text"]
        assert question.endswith("attention to: the blue files")
        talked(endpoint, 1)
        assert begins_with_summary(model.requests[4])
        assert compact(endpoint)["stop_reason"] == "final_answer"
        question = model.requests[5].body["messages"][-1]["content"][-1]["text"]
        assert "begins with an earlier summary" in question


def test_what_cannot_be_compacted_or_is_no_wish_is_refused_clearly(
    daemon: Daemon, work: Path
) -> None:
    with model_server(answers(2)) as model:
        endpoint = model.session(daemon, work)
        empty = compact(endpoint)
        assert (empty["stop_reason"], empty["error"]["type"]) == ("error", "compaction_failed")
        assert "too little" in empty["error"]["message"]
        endpoint.prompt("short")
        assert compact(endpoint)["error"]["type"] == "compaction_failed"
        path = f"/sessions/{endpoint.session_id}/compact"
        bad: Sequence[Any] = ({"focus": "x" * 4001}, {"focus": 3}, [], b"{")
        for body in bad:
            status, answer = endpoint.post(path, body)
            assert (status, answer["code"]) == (422, "invalid_input"), body
        assert endpoint.prompt("next")["status"] == "completed"


def test_three_failures_in_a_row_turn_it_off_for_all_to_see_until_somebody_compacts_by_hand(
    daemon: Daemon, work: Path
) -> None:
    cut = Reply([text("half a summ")], stop_reason="max_tokens")
    calls = Reply([text("let me look"), bash("true")])
    failed = ApiError(403, "not you")
    full = Reply([text("ok")], usage=FULL)
    script = [*answers(1), full, cut, full, calls, full, failed, full, full, full]
    with model_server([*script, SUMMARY, full, SUMMARY, *answers(1)]) as model:
        endpoint = model.session(daemon, work)
        talked(endpoint, 2)
        for _ in range(5):
            assert endpoint.prompt("go on")["result"]["final_text"] == "ok"
        assert sum(map(asks_for_summary, model.requests)) == bounds.COMPACTION_FAILURES_MAX
        assert len(notices(endpoint, "could not be compacted")) == 3
        (off,) = notices(endpoint, "no longer compacted by itself")
        assert "not you" in off
        assert compact(endpoint)["stop_reason"] == "final_answer"
        talked(endpoint, 1)
        assert endpoint.prompt("go on")["status"] == "completed"
        assert begins_with_summary(model.requests[-1])


def test_a_compaction_that_does_not_help_is_not_repeated_for_ever(
    daemon: Daemon, work: Path
) -> None:
    full = Reply([text("ok")], usage=FULL)
    asked = 0

    def script(request: Any) -> Reply:
        nonlocal asked
        wanted = "Write a summary" in json.dumps(request.body["messages"][-1])
        asked += wanted
        return SUMMARY if wanted else full

    with model_server(script) as model:
        endpoint = model.session(daemon, work)
        talked(endpoint, 8)
        assert asked <= bounds.COMPACTION_FAILURES_MAX
        (off,) = notices(endpoint, "no longer compacted by itself")
        assert "did not shrink enough" in off


@pytest.mark.parametrize("how", ["run", "session"])
def test_a_compaction_can_be_cancelled_and_is_made_with_the_next_prompt(
    daemon: Daemon, work: Path, how: str
) -> None:
    stalls = Reply([text("half a summary")], fault=Fault("stall", after=3))
    full = Reply([text("ok")], usage=FULL)
    with model_server([*answers(1), full, stalls, SUMMARY, *answers(1)]) as model:
        endpoint = model.session(daemon, work)
        talked(endpoint, 2)
        run = endpoint.prompt("go on", "async")
        eventually(lambda: len(model.requests) == 3, "a summary is asked for")
        where = {"run": f"/runs/{run['run_id']}", "session": f"/sessions/{endpoint.session_id}"}
        assert endpoint.post(f"{where[how]}/cancel")[0] in (200, 202)
        ended = f"/runs/{run['run_id']}"
        eventually(lambda: endpoint.get(ended)[1]["status"] == "cancelled", "cancelled")
        assert endpoint.prompt("next")["status"] == "completed"
        assert begins_with_summary(model.requests[-1])
        assert records(endpoint, "api_call")[2]["stop_reason"] == "compaction", "it was paid for"


def test_a_worker_that_dies_while_compacting_by_hand_leaves_it_to_the_next(
    daemon: Daemon, work: Path
) -> None:
    stalls = Reply([text("half a summary")], fault=Fault("stall", after=3))
    with model_server([*answers(3), stalls, SUMMARY, *answers(1)]) as model:
        endpoint = model.session(daemon, work)
        talked(endpoint, 3)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(compact, endpoint, {"focus": "blue"})
            eventually(lambda: len(model.requests) == 4, "a summary is asked for")
            crash(daemon, endpoint)
            assert isinstance(waiting.exception(), OSError | HTTPException)
        run_id = records(endpoint, "run_started")[-1]["run_id"]
        eventually(lambda: endpoint.get(f"/runs/{run_id}")[1]["result"], "it is made after all")
        assert model.requests[3].body == model.requests[4].body
        assert endpoint.prompt("next")["status"] == "completed"
        assert begins_with_summary(model.requests[5])


def test_a_worker_that_dies_after_compacting_by_hand_does_not_do_it_again(
    daemon: Daemon, work: Path
) -> None:
    with model_server([*answers(3), SUMMARY]) as model:
        endpoint = model.session(daemon, work)
        talked(endpoint, 3)
        done = compact(endpoint)
        run_id = records(endpoint, "run_started")[-1]["run_id"]
        daemon.call("session.destroy", session_id=endpoint.session_id)
        file = daemon.home / "state" / "sessions" / endpoint.session_id / "transcript.jsonl"
        *lines, last = file.read_bytes().splitlines(keepends=True)
        assert json.loads(last)["kind"] == "run_finished"
        file.write_bytes(b"".join(lines))
        daemon.call("session.resume", session_id=endpoint.session_id, env=model.env)
        ended = f"/runs/{run_id}"
        result = eventually(lambda: endpoint.get(ended)[1]["result"], "it is answered")
        for name in ("stop_reason", "final_text"):
            assert result[name] == done[name]
        now = daemon.call("session.status", session_id=endpoint.session_id)["usage"]
        assert now["context_tokens"] == records(endpoint, "note")[-1]["tokens_after"]


def test_a_spent_budget_pays_for_no_summary(daemon: Daemon, work: Path) -> None:
    full = Reply([text("ok")], usage=FULL)
    with model_server([*answers(2), full]) as model:
        endpoint = model.session(daemon, work, limits={"tokens": 800_000})
        talked(endpoint, 3)
        assert endpoint.prompt("go on")["result"]["stop_reason"] == "budget"
        assert compact(endpoint)["stop_reason"] == "budget"
        assert notices(endpoint, "compacted") == []


BLOCK = {"type": "compaction", "content": "Go far.", "signature": "s1gned"}


@pytest.fixture
def hosted(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """What stands behind the API's own address: the daemon's proxy is the scripted server."""
    counted = {"input_tokens": 50_000, "output_tokens": 300, "cache_read_input_tokens": 1_000}
    top_level = {"input_tokens": 0, "output_tokens": 0, **dict.fromkeys(CACHED, 0)}
    usage = top_level | {"iterations": [{"type": "compaction", **counted}]}
    compacted = Reply([BLOCK], stop_reason="compaction", usage=usage)
    refused = ApiError(400, "compaction: this model does not compact")
    with model_server([*answers(3), compacted, *answers(2), refused, SUMMARY]) as model:
        monkeypatch.setenv("http_proxy", model.base_url)
        yield model


def test_where_the_api_compacts_its_block_is_kept_as_it_is_and_all_its_tokens_count(
    hosted: ModelServer, own_daemon: Daemon, work: Path
) -> None:
    env = hosted.env | {"ANTHROPIC_BASE_URL": "http://api.anthropic.com"}
    endpoint = own_daemon.session(work, env=env, model="claude-opus-4-8")
    talked(endpoint, 3)
    assert compact(endpoint, {"focus": "blue"})["stop_reason"] == "final_answer"
    asked = hosted.requests[3].body
    assert asked["compaction"]["type"] == "summarize"
    assert asked["compaction"]["instructions"].endswith("blue")
    assert asked["messages"][-1]["role"] == "assistant"
    call = records(endpoint, "api_call")[-1]
    assert [call[k] for k in ("fresh", "cache_read", "output")] == [50_000, 1_000, 300]
    assert call["cost_usd"] == pytest.approx(0.25 + 0.0005 + 0.0075)
    endpoint.prompt(LONG)
    crash(own_daemon, endpoint)
    endpoint.prompt("go on")
    for request in hosted.requests[4:6]:
        assert unmarked(request.body["messages"][0])["content"][0] == BLOCK
    assert compact(endpoint)["stop_reason"] == "final_answer"
    assert asks_for_summary(hosted.requests[7]), "refused, it is asked for in words"
    betas = [request.headers.get("anthropic-beta", "") for request in hosted.requests]
    assert [BETA in beta for beta in betas] == [False] * 3 + [True] * 5
