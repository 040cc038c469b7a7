"""Dispatch: order, isolation and cancellation of the tool calls of one turn."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from session_worker.tools.spec import ToolContext, ToolResult, ToolSpec
from sidecar.protocol.bounds import (
    ERROR_TEXT_CHARS,
    INVALID_JSON_CHARS,
    PARALLEL_TOOLS,
)
from tests.support.turn import Params, Turn, echo, tool, use


async def test_results_come_in_call_order_whatever_order_the_calls_end_in() -> None:
    gates = {"a": asyncio.Event(), "b": asyncio.Event()}

    async def wait(_params: Params, ctx: ToolContext) -> ToolResult:
        if ctx.call_id == "b":
            gates["a"].set()
        else:
            await gates["a"].wait()
        return ToolResult(ctx.call_id)

    turn = Turn([tool(wait, read_only=True)])
    results = await turn.run(use("a"), use("b"))
    assert turn.log == ["start a", "start b", "end b", "end a"]
    assert [result.content for result in results] == ["a", "b"]


async def test_read_only_calls_share_and_a_mutating_call_is_alone_in_its_place() -> None:
    running: set[str] = set()
    seen: list[set[str]] = []

    async def note(_params: Params, ctx: ToolContext) -> ToolResult:
        running.add(ctx.call_id)
        for _ in range(3):
            await asyncio.sleep(0)
        seen.append(set(running))
        running.remove(ctx.call_id)
        return ToolResult("")

    turn = Turn([tool(note, "read", read_only=True), tool(note, "write")])
    names = ["read", "read", "write", "write", "read", "read"]
    await turn.run(*(use(str(n), name) for n, name in enumerate(names)))
    assert seen[0] == {"0", "1"}
    assert seen[2:4] == [{"2"}, {"3"}]
    assert seen[4] == {"4", "5"}


async def test_never_more_than_the_bound_run_at_once() -> None:
    running = most = 0

    async def count(_params: Params, _ctx: ToolContext) -> ToolResult:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return ToolResult("")

    turn = Turn([tool(count, read_only=True)])
    await turn.run(*(use(str(n)) for n in range(3 * PARALLEL_TOOLS)))
    assert most == PARALLEL_TOOLS
    assert len(turn.ended) == 3 * PARALLEL_TOOLS


async def test_calls_with_the_same_id_get_a_result_each() -> None:
    results = await Turn([tool(echo)]).run(use("a", given={"text": "1"}), use("a"))
    assert [result.content for result in results] == ["1", "a"]


async def test_no_calls_give_no_results() -> None:
    assert await Turn([]).run() == []


async def test_an_unknown_tool_is_an_error_that_names_some_there_are() -> None:
    turn = Turn([tool(echo, f"tool_{n}") for n in range(30)])
    [result] = await turn.run(use("a", "tool-7"))
    assert result.is_error
    assert result.content.startswith("there is no tool 'tool-7', only: tool_7, ")
    assert result.content.count("tool_") == 20
    assert turn.log == ["end a"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"count": 0}, "count: Input should be greater than or equal to 1"),
        ({"count": "x", "text": None}, "text: Input should be a valid string; count: "),
        ({"tect": "typo"}, "tect: Extra inputs are not permitted"),
        (["text"], "input: Input should be a valid dictionary"),
        ({"INVALID_JSON": "{", "text": ""}, "INVALID_JSON: Extra inputs are not permitted"),
    ],
)
async def test_invalid_input_is_an_error_with_path_and_reason(given: Any, reason: str) -> None:
    turn = Turn([tool(echo)])
    [result] = await turn.run(use("a", given=given))
    assert result.is_error
    assert result.content.startswith("tool was not run")
    assert reason in result.content
    assert turn.log == ["end a"]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ('{"text": "' + "x" * 500 + '\n"}', "Invalid control character at: line 1 column 511"),
        ('{"a":1}{"b":2}', "Extra data: line 1 column 8"),
        ('{"text": "\\x"}', "Invalid \\escape"),
        ("", "Expecting value"),
        ("[1]", "not one JSON object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"text": "\ud83d\0', "Invalid control character"),
    ],
)
async def test_unparsable_input_is_an_error_that_quotes_the_place(raw: str, reason: str) -> None:
    turn = Turn([tool(echo)])
    [result] = await turn.run(use("a", given={"INVALID_JSON": raw}))
    assert result.is_error
    assert reason in result.content
    assert len(result.content.split("near: ", 1)[1]) <= INVALID_JSON_CHARS
    json.dumps(result.content).encode()
    assert turn.log == ["end a"]


async def test_an_exception_in_a_handler_is_that_call_s_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(params: Params, _ctx: ToolContext) -> ToolResult:
        if params.text == "exit":
            raise SystemExit("3")
        raise KeyError("k" * 2 * ERROR_TEXT_CHARS)

    turn = Turn([tool(fail), tool(echo, "echo")])
    results = await turn.run(use("a"), use("b", given={"text": "exit"}), use("c", "echo"))
    assert [result.is_error for result in results] == [True, True, False]
    assert results[0].content.startswith("tool failed: KeyError: 'kkk")
    assert len(results[0].content) == ERROR_TEXT_CHARS
    assert results[1].content == "tool failed: SystemExit: 3"
    assert "Traceback" in caplog.text


async def test_a_handler_that_awaits_something_cancelled_is_an_error_not_a_cancellation() -> None:
    async def wait(_params: Params, _ctx: ToolContext) -> ToolResult:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    [result] = await Turn([tool(wait)]).run(use("a"))
    assert (result.content, result.is_error) == ("tool failed: CancelledError: ", True)


async def test_a_handler_that_returns_no_result_is_an_error() -> None:
    async def nothing(_params: Params, _ctx: ToolContext) -> Any:
        return None

    [result] = await Turn([tool(nothing)]).run(use("a"))
    assert result.is_error


async def test_a_validator_that_breaks_is_an_error() -> None:
    class Broken(BaseModel):
        text: str = ""

        @field_validator("text")
        @classmethod
        def check(cls, _text: str) -> str:
            raise RuntimeError("broken validator")

    spec: ToolSpec[Any] = ToolSpec("tool", "", Broken, echo, "other", True, str)
    [result] = await Turn([spec]).run(use("a", given={"text": "x"}))
    assert (result.content, result.is_error) == (
        "tool failed: RuntimeError: broken validator",
        True,
    )


async def test_cancelling_ends_what_runs_starts_nothing_more_and_keeps_what_finished() -> None:
    started = asyncio.Event()

    async def act(params: Params, ctx: ToolContext) -> ToolResult:
        if params.text == "quick":
            return ToolResult("done")
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            turn.log.append(f"cleaned {ctx.call_id}")
        raise AssertionError

    turn = Turn([tool(act, "read", read_only=True), tool(act, "write")])
    quick = {"text": "quick"}
    running = asyncio.create_task(
        turn.run(use("a", "read", quick), use("b", "read"), use("c", "write", quick))
    )
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert turn.log == ["start a", "end a", "start b", "cleaned b"]
    assert turn.ended["a"].content == "done"


async def test_a_second_cancel_does_not_cut_the_clean_up_short() -> None:
    started, cleaning, finish = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn(_params: Params, _ctx: ToolContext) -> ToolResult:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cleaning.set()
            await finish.wait()
        return ToolResult("late")

    turn = Turn([tool(stubborn)])
    running = asyncio.create_task(turn.run(use("a")))
    await started.wait()
    running.cancel()
    await cleaning.wait()
    running.cancel()
    await asyncio.sleep(0)
    assert not running.done()
    finish.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert turn.ended["a"].content == "late"
