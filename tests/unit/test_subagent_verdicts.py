"""The verdicts about subagents: who asks, what they may at most, when they end, what is told."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from session_worker.budget import exhausted, left
from session_worker.permissions.policy import Decision, Policy, Request
from session_worker.permissions.verdict import decide
from session_worker.provider import choose_provider
from session_worker.result import Usage
from session_worker.spec import Budget
from session_worker.subagents.delegate import child_name, told
from session_worker.subagents.following import shown
from session_worker.tools.spec import ToolContext, ToolResult, ToolSpec
from sidecar.identity import Identity
from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.methods import NAME_PATTERN, PERMISSION_MODES
from sidecar.protocol.modes import STRICTEST_FIRST, stricter
from sidecar.protocol.paths import places
from sidecar.protocol.peer import is_process
from sidecar.protocol.policy_file import parse_rules
from sidecar.protocol.process_tree import start_ticks
from sidecar.record import Record
from sidecar.session import Session
from sidecar.subagents import asked_by_worker, is_orphan, require_room, within
from tests.support.turn import Params, Turn, use

Json = dict[str, Any]
SPEC: Json = {"cwd": "/", "mode": "ask", "limits": {}}
WORKER = Identity("boot", 7, 1)


def session(name: str, parent: str | None = None, **spec: Any) -> Session:
    spec = {**SPEC, **spec, **({"parent": parent} if parent else {})}
    where = places({"SIDECAR_HOME": "/nowhere"}).session(name)
    return Session(Record(name, name, spec, "now"), where, lambda _: None)


def find(reference: str) -> Session:
    return {"mine": session("mine", "me"), "other": session("other", "you")}[reference]


def refusal(method: str, **params: Any) -> str:
    with pytest.raises(SidecarError) as refused:
        asked_by_worker(method, params, "me", find)
    return refused.value.code


# --- who may ask -------------------------------------------------------------------------------


def test_a_worker_may_make_see_and_end_subagents_of_its_own() -> None:
    assert asked_by_worker("session.create", {"cwd": "/"}, "me", find)["parent"] == "me"
    for method in ("session.status", "session.destroy"):
        asked = {"session_id": "mine"}
        assert asked_by_worker(method, asked, "me", find) == asked


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session.create", {"parent": "you"}),
        ("session.status", {"session_id": "other"}),
        ("session.destroy", {"session_id": "other"}),
        ("session.rename", {"session_id": "mine"}),
        ("session.resume", {"session_id": "mine"}),
        ("session.output", {"session_id": "mine"}),
        ("session.subscribe", {"session_id": "mine"}),
        ("session.list", {}),
        ("sidecar.shutdown", {}),
        ("sidecar.status", {}),
        ("sidecar.subscribe", {}),
    ],
)
def test_a_worker_may_ask_for_nothing_else(method: str, params: Json) -> None:
    assert refusal(method, **params) == "forbidden"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_only_the_very_process_is_taken_for_a_worker() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        me, began = os.getpid(), start_ticks(os.getpid())
        assert is_process(ours, me, began)
        assert not is_process(ours, me, began + 1)  # somebody else has had this pid
        assert not is_process(ours, os.getppid(), start_ticks(os.getppid()))
        assert not is_process(ours, 1 << 22, began)


# --- the ceiling -------------------------------------------------------------------------------


def test_the_stricter_of_two_modes_is_that_of_the_table() -> None:
    assert set(STRICTEST_FIRST) == set(PERMISSION_MODES)
    for (i, one), (j, other) in itertools.product(enumerate(STRICTEST_FIRST), repeat=2):
        assert stricter(one, other) == STRICTEST_FIRST[min(i, j)]


@pytest.mark.parametrize(
    ("parents", "asked", "gets"),
    [("ask", None, "ask"), ("ask", "bypass", "ask"), ("auto", "plan", "plan")],
)
def test_a_subagent_gets_no_laxer_mode_than_its_parent_has_now(
    parents: str, asked: str | None, gets: str
) -> None:
    parent = session("p")
    parent.word = {**parent.word, "mode": parents}
    params: Json = {"limits": {}}
    if asked:
        params["mode"] = asked
    assert within(params, parent) == {"limits": {}, "mode": gets, "parent": "p"}


def test_a_subagent_gets_no_higher_limit_than_its_parent() -> None:
    parent = session("p", limits={"memory_bytes": 5, "tokens": 10, "processes": 3})
    given = {"limits": {"memory_bytes": 9, "tokens": 4, "cpu_s": 1}}
    limits = {"memory_bytes": 5, "tokens": 4, "processes": 3, "cpu_s": 1}
    assert within(given, parent)["limits"] == limits


def test_a_subagent_may_use_what_its_parent_has_left() -> None:
    used = Usage(input_tokens=30, output_tokens=12, cost_usd=0.25)
    for budget, rest in (
        (Budget(), {}),
        (Budget(tokens=50), {"tokens": 8}),
        (Budget(50, 1.0), {"tokens": 8, "cost_usd": 0.75}),
    ):
        assert exhausted(budget, used) is None
        assert left(budget, used) == rest


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"ANTHROPIC_API_KEY": "k"},
        {"ANTHROPIC_AUTH_TOKEN": "t", "ANTHROPIC_BASE_URL": "http://x"},
        {"ANTHROPIC_BASE_URL": "http://x"},
    ],
)
def test_a_subagent_gets_the_very_provider_of_its_parent(env: dict[str, str]) -> None:
    provider = choose_provider(env, "m")
    assert choose_provider(provider.to_env(), "m") == provider


@pytest.mark.parametrize("mode", PERMISSION_MODES)
def test_starting_a_subagent_needs_no_permission_but_can_be_refused_one(mode: str) -> None:
    request = Request("task", "task", False)

    def verdict(**lists: Any) -> Decision:
        rules = parse_rules(lists, "test")
        policy = Policy(mode, (rules,), (Path("/w"),), Path("/h"), (), False)
        return decide(request, policy).decision

    assert verdict() is Decision.ALLOW
    assert verdict(ask=["task"]) is Decision.ASK
    assert verdict(deny=["task"]) is Decision.DENY


# --- room and end ------------------------------------------------------------------------------


def test_who_may_have_one_more() -> None:
    parent = session("p")
    children = [session(str(n), "p") for n in range(bounds.SUBAGENTS_MAX)]
    require_room(parent, children[1:])
    children[0].state = "exited"
    require_room(parent, children)
    children[0].state = "idle"
    ended, ending = session("e"), session("e")
    ended.state, ending.record.wanted = "failed", "down"
    for which, its, code in (
        (parent, children, "limit_reached"),
        (session("c", "p"), [], "forbidden"),
        (ended, [], "invalid_params"),
        (ending, [], "invalid_params"),
    ):
        with pytest.raises(SidecarError) as refused:
            require_room(which, its)
        assert refused.value.code == code


@pytest.mark.parametrize(
    ("state", "heard", "pid", "made_by", "orphaned"),
    [
        ("running", True, 7, WORKER, False),
        ("running", True, 8, WORKER, True),  # another incarnation
        ("restarting", True, None, WORKER, True),
        ("sleeping", True, None, None, False),  # made by a person
        ("starting", False, None, WORKER, False),  # not adopted yet
        ("stopping", True, 7, WORKER, False),
        ("exited", True, None, None, True),
        ("lost", False, None, WORKER, True),
    ],
)
def test_a_subagent_does_not_outlive_what_it_was_made_for(
    state: str, heard: bool, pid: int | None, made_by: Identity | None, orphaned: bool
) -> None:
    parent, child = session("p"), session("c", "p")
    parent.state = state
    parent.word = {**parent.word, "shim_pid": 3 if heard else None, "pid": pid}
    child.record.made_by = made_by
    assert is_orphan(child, parent) is orphaned
    child.record.wanted = "down"
    assert not is_orphan(child, parent)


def test_a_session_without_a_parent_is_nobodys_orphan() -> None:
    assert not is_orphan(session("s"), None)
    assert is_orphan(session("c", "gone"), None)


# --- what is told ------------------------------------------------------------------------------

RESULT: Json = {
    "stop_reason": "final_answer",
    "turns": 2,
    "tool_calls": 1,
    "final_text": "42",
    "usage": {},
    "error": None,
}


@pytest.mark.parametrize(
    ("change", "content", "is_error"),
    [
        ({}, "42", False),
        ({"final_text": ""}, "(the subagent said nothing)", False),
        (
            {"stop_reason": "budget", "error": {"type": "budget", "message": "all is used"}},
            "The subagent did not finish: budget: all is used. The last it said:\n42",
            True,
        ),
        (
            {"stop_reason": "max_turns", "final_text": ""},
            "The subagent did not finish: max_turns.",
            True,
        ),
    ],
)
def test_the_model_is_told_the_last_word_and_what_went_wrong(
    change: Json, content: str, is_error: bool
) -> None:
    result = told({**RESULT, **change}, {"session_id": "c"})
    assert (result.content, result.is_error) == (content, is_error)
    assert result.meta["subagent"]["session_id"] == "c"


def test_of_a_subagents_updates_its_words_and_the_titles_of_its_calls_are_shown() -> None:
    words = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "hm"}}
    call = {"sessionUpdate": "tool_call_update", "status": "in_progress", "title": "touch x"}
    assert [shown(u) for u in (words, call)] == ["hm", "\n> touch x\n"]
    thought = {**words, "sessionUpdate": "agent_thought_chunk"}
    for other in (thought, {**call, "status": "completed"}, {}):
        assert shown(other) == ""


def test_a_description_becomes_a_name_that_a_session_may_have() -> None:
    for description in ("count files", "../../etc", "日本", "x" * 200, "-"):
        names = {child_name(description) for _ in range(2)}
        assert len(names) == 2
        assert all(re.match(NAME_PATTERN, name) for name in names)


async def test_calls_of_a_tool_that_is_side_by_side_share_with_each_other_only() -> None:
    both = asyncio.Event()
    running: list[str] = []

    async def work(_params: Params, ctx: ToolContext) -> ToolResult:
        running.append(ctx.call_id)
        if len(running) == 2:
            both.set()
        await both.wait()
        return ToolResult("ok")

    async def alone(_params: Params, ctx: ToolContext) -> ToolResult:
        assert ctx.call_id == "3"
        assert len(running) == 2
        return ToolResult("ok")

    def spec(name: str, handler: Any, **more: Any) -> ToolSpec[Params]:
        return ToolSpec(name, "d", Params, handler, "other", False, lambda p: p.text, **more)

    turn = Turn([spec("together", work, side_by_side=True), spec("alone", alone)])
    await turn.run(use("1", "together"), use("2", "together"), use("3", "alone"))
    assert turn.log[:2] == ["start 1", "start 2"]
    assert turn.log[-2:] == ["start 3", "end 3"]
