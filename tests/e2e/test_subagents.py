"""Subagents at work: what they get, what is seen of them, what they may, what they cost."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model import Reply, text
from tests.support.acp_client import over_websocket
from tests.support.control import CallFailed
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint
from tests.support.processes import eventually
from tests.support.questions import answer, asked, pending, write
from tests.support.scripted import FINE, bash
from tests.support.subagents import HELD, Family, Make, families, is_subagent, task

Json = dict[str, Any]


@pytest.fixture
def make(daemon: Daemon, work: Path) -> Iterator[Make]:
    with families(daemon, work) as make:
        yield make


def test_a_task_is_done_by_a_session_of_its_own_of_which_only_the_last_word_comes_back(
    make: Make, work: Path
) -> None:
    family = make(limits={"tokens": 1_000_000})
    family.child_answers.extend([Reply([text("I look."), bash("touch made")]), Reply([text("42")])])
    run = family.parent.prompt(Reply([task("find the number", "find it")]), FINE)
    assert run["result"]["final_text"] == "fine"
    assert family.results() == ["42"]
    (child,) = family.children()
    assert (child["state"], child["exit"]["reason"]) == ("exited", "destroyed")
    assert child["name"].startswith("find-it-")
    assert child["cwd"] == str(work)
    assert (work / "made").exists()
    # what the parent's clients see of it while it works
    updates = family.parent.events("update", run["run_id"])
    (meta,) = [u["_meta"] for u in updates if "_meta" in u]
    shown = {k: child[k] for k in ("session_id", "name")} | {"socket": child["endpoint"]["socket"]}
    assert meta == {"sidecar/subagent": shown}
    output = "".join(d["text"] for d in family.parent.events("tool_output", run["run_id"]))
    assert output == "I look.\n> touch made\n42"
    # its transcript stays
    sent = family.parent.daemon.call("session.output", session_id=child["session_id"])["events"]
    assert [e["data"]["final_text"] for e in sent if e["type"] == "run_finished"] == ["42"]
    # depth is one
    offered = {is_subagent(b): {t["name"] for t in b["tools"]} for b in family.parent.bodies}
    assert offered[False] - offered[True] == {"task"}
    # what it used is the session's, also for a later worker
    whole = family.status()["usage"]
    own = sum(c["output"] for c in family.parent.events("api_call"))
    assert whole["output_tokens"] > own
    assert run["result"]["usage"]["output_tokens"] == whole["output_tokens"]
    assert child["limits"]["tokens"] < 1_000_000
    family.parent.crash()
    assert family.status()["usage"] == whole


def test_tasks_of_one_turn_run_side_by_side_and_one_that_fails_says_how(
    make: Make, work: Path
) -> None:
    family = make()
    other = Reply([bash("until [ -e begun ]; do sleep 0.02; done")])
    refused = Reply([text("no")], "refusal")
    family.child_answers.extend([HELD, other, refused, Reply([text("done")])])
    run_id = family.parent.start(Reply([task("one"), task("two")]), FINE)
    eventually(lambda: len(family.child_answers) == 1, "one is over, the other still waits")
    (work / "go").touch()
    family.parent.ended(run_id)
    # whichever of them asked its model first
    assert sorted(family.results()) == ["The subagent did not finish: refusal.", "done"]


def test_a_question_of_a_subagent_is_asked_as_the_parents_and_its_answer_goes_back(
    make: Make, work: Path
) -> None:
    family = make(mode="ask")
    writes = [Reply([write(name)]) for name in ("one", "two", "three")]
    family.child_answers.extend([*writes, Reply([text("tried")])])
    run_id = family.parent.start(Reply([task()]), FINE)
    (first,) = asked(family.parent.endpoint)
    child = Endpoint(family.child())
    assert first["run_id"] == run_id
    assert first["toolCall"]["title"].startswith("look around: ")
    assert first["_meta"]["sidecar"]["subagent"]["session_id"] == child.session_id
    assert answer(family.parent.endpoint, first, "allow_once") == 200
    eventually(lambda: pending(family.parent.endpoint) not in ([], [first]), "the next question")
    (second,) = pending(family.parent.endpoint)
    assert answer(family.parent.endpoint, second, "reject_once", "not that") == 200
    eventually(lambda: pending(family.parent.endpoint) not in ([], [second]), "the third question")
    (third,) = pending(family.parent.endpoint)
    # the third is answered where it comes from, and withdrawn here
    assert answer(child, pending(child)[0], "reject_once") == 200
    family.parent.ended(run_id)
    outcomes = {e["request_id"]: e["outcome"] for e in family.parent.events("permission_resolved")}
    assert outcomes[third["request_id"]] == "cancelled"
    assert {path.name for path in work.iterdir()} == {"one"}
    said = [e["reason"] for e in child_events(family, "permission_resolved")]
    assert said == ["", "not that", ""]


def child_events(family: Family, kind: str) -> list[Json]:
    (child,) = family.children()
    told = family.parent.daemon.call("session.output", session_id=child["session_id"])["events"]
    return [e["data"] for e in told if e["type"] == kind]


def test_a_subagent_may_no_more_than_its_parent_now_and_was_told(make: Make, work: Path) -> None:
    family = make(mode="accept-edits", deny=["edit(secret/**)"])
    touch = Reply([bash("touch made")])
    run_id = family.parent.start(touch, Reply([task()]), FINE)
    (question,) = asked(family.parent.endpoint)
    assert answer(family.parent.endpoint, question, "reject_always") == 200
    family.child_answers.extend([Reply([write("secret/x"), write("open")]), touch, FINE])
    family.parent.ended(run_id)
    assert {path.name for path in work.iterdir()} == {"open"}
    (child,) = family.children()
    assert child["mode"] == "accept-edits"
    own = family.parent.endpoint.session_id
    call = family.parent.daemon.call
    by_hand = call("session.create", cwd=str(work), parent=own, mode="bypass")
    assert by_hand["mode"] == "accept-edits"


FORBIDDEN = """
import http.client, json, os, socket, sys
control, own, child, path = sys.argv[1:]
def rpc(method, **params):
    s = socket.socket(socket.AF_UNIX); s.connect(control)
    s.sendall(json.dumps({"jsonrpc":"2.0","id":1,"method":method,"params":params}).encode()+b"\\n")
    return json.loads(s.makefile().readline())["error"]["data"]["code"]
def post(route):
    c = http.client.HTTPConnection("localhost"); c.sock = socket.socket(socket.AF_UNIX)
    c.sock.connect(path)
    c.request("POST", route, "{}", {"Content-Type": "application/json"})
    return c.getresponse().status
print(rpc("session.create", cwd=os.getcwd(), parent=own),
      rpc("session.status", session_id=child), rpc("session.destroy", session_id=child),
      post(f"/sessions/{child}/cancel"), post("/runs"))
"""


def test_what_the_parent_or_the_subagent_starts_may_neither_make_nor_end_nor_steer_one(
    make: Make, work: Path, tmp_path: Path
) -> None:
    script = tmp_path / "forbidden.py"
    script.write_text(FORBIDDEN)
    run = f"until [ -e args ]; do sleep 0.02; done; {shlex.quote(sys.executable)} {script} $(<args)"
    until_go = "until [ -e go ]; do sleep 0.02; done"
    family = make()
    job = bash(f"({run}) > of_parent; touch of_parent.done")
    job["input"]["run_in_background"] = True
    family.child_answers.extend(
        [Reply([bash(f"({run}) > of_child; touch of_child.done; {until_go}")]), FINE]
    )
    run_id = family.parent.start(Reply([job]), Reply([task()]), FINE)
    child = family.child()
    control, own = family.parent.daemon.socket, family.parent.endpoint.session_id
    args = f"{control} {own} {child['session_id']} {child['endpoint']['socket']}"
    (work / "args.new").write_text(args)
    (work / "args.new").rename(work / "args")
    eventually((work / "of_parent.done").exists, "the parent's tool has tried")
    eventually((work / "of_child.done").exists, "the subagent's tool has tried")
    for tried in ("of_parent", "of_child"):
        assert (work / tried).read_text().split() == ["forbidden"] * 3 + ["403"] * 2
    (work / "go").touch()
    assert family.parent.ended(run_id)["result"]["final_text"] == "fine"


def test_the_budget_of_a_session_is_that_of_its_subagents_too(make: Make) -> None:
    family = make(limits={"tokens": 100_000})
    big = {"input_tokens": 60_000, "output_tokens": 1}
    family.child_answers.extend([Reply([bash("true")], usage=big), Reply([text("42")], usage=big)])
    run = family.parent.prompt(Reply([task()]))
    (child,) = family.children()
    assert child["last_result"]["stop_reason"] == "final_answer"
    assert run["result"]["stop_reason"] == "budget"


def test_a_parent_that_cannot_have_the_session_is_a_clear_error(daemon: Daemon, work: Path) -> None:
    parent = daemon.create(work)["session_id"]
    children = [daemon.create(work, parent=parent) for _ in range(4)]
    refusals = {}
    for name, wanted in {
        "unknown": "nobody",
        "deep": children[0]["session_id"],
        "many": parent,
        "bad rule": parent,
    }.items():
        more = {"deny": ["edit("]} if name == "bad rule" else {}
        with pytest.raises(CallFailed) as refused:
            daemon.create(work, parent=wanted, **more)
        refusals[name] = refused.value.code
    assert refusals == {
        "unknown": "session_not_found",
        "deep": "forbidden",
        "many": "limit_reached",
        "bad rule": "invalid_params",
    }
    daemon.call("session.destroy", session_id=parent)
    listed = daemon.call("session.list", all=True)["sessions"]
    assert {s["state"] for s in listed} == {"exited"}
    for call, params in (("create", {"cwd": str(work), "parent": parent}), ("resume", {})):
        named = {"session_id": children[0]["session_id"]} if call == "resume" else {}
        with pytest.raises(CallFailed) as refused:
            daemon.call(f"session.{call}", **params, **named)
        assert refused.value.error["data"]["param"] == "parent"


async def test_an_editor_sees_the_task_and_a_stricter_mode_ends_what_began_in_a_laxer(
    make: Make, work: Path
) -> None:
    """The client holds all it is sent against the schema of ACP-C."""
    family = make(mode="auto")
    family.parent.answers.extend([Reply([task()]), FINE])
    family.child_answers.append(HELD)
    async with over_websocket(family.parent.endpoint) as client:
        await client.new()
        prompt = await client.begin("go")
        await client.until(lambda message: "sidecar/subagent" in str(message), "of the subagent")
        await asyncio.to_thread(eventually, (work / "begun").exists, "the subagent works")
        async with over_websocket(Endpoint(family.child())) as above:
            await above.new()
            assert await above.refused("session/set_mode", **above.named, modeId="bypass") == -32602
        await client.call("session/set_mode", **client.named, modeId="plan")
        await client.answer_to(prompt)
    assert family.results() == [
        "The subagent did not finish: the session's mode is plan now, stricter than it began in."
    ]
    assert family.children()[0]["state"] == "exited"
