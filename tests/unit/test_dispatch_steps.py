"""Dispatch: what a call passes before and behind its handler, and how long its result may be."""

import asyncio
import dataclasses
from pathlib import Path

import pytest

from session_worker.tools.dispatch import ToolCall
from session_worker.tools.spec import ToolContext, ToolResult
from sidecar.protocol.bounds import (
    MESSAGE_RESULTS_CHARS,
    RESULT_CHARS_MIN,
    TOOL_RESULT_CHARS,
)
from tests.support.turn import Params, Turn, echo, tool, use


async def test_a_call_that_is_not_permitted_does_not_run_and_says_why() -> None:
    turn = Turn([tool(echo)])
    denied, allowed = await turn.run(use("denied"), use("a"))
    assert (denied.content, denied.is_error) == ("not now", True)
    assert allowed.content == "a"
    assert turn.log == ["end denied", "start a", "end a"]


async def test_a_call_whose_start_cannot_be_noted_does_not_run() -> None:
    turn = Turn([tool(echo)])

    async def full(_call: ToolCall) -> None:
        raise OSError("disk full")

    turn.on_start = full
    [result] = await turn.run(use("a"))
    assert (result.content, result.is_error) == ("tool failed: OSError: disk full", True)
    assert turn.log == ["end a"]


async def test_a_broken_end_callback_costs_no_result() -> None:
    turn = Turn([tool(echo)])
    turn.on_end = lambda use, result: 1 / 0
    assert [result.content for result in await turn.run(use("a"), use("b"))] == ["a", "b"]


async def test_a_long_result_is_cut_in_the_middle_and_the_whole_is_in_a_file(
    tmp_path: Path,
) -> None:
    whole = "start" + "x" * 2 * TOOL_RESULT_CHARS + "end"
    turn = Turn([tool(echo)], tmp_path / "spill")
    [long, odd] = await turn.run(use("a", given={"text": whole}), use("b", given={"text": "nul\0"}))
    shown, _, footer = long.content.rpartition("\n")
    assert len(shown) <= TOOL_RESULT_CHARS
    assert shown.startswith("startx") and shown.endswith("xend") and " omitted …" in shown
    file = tmp_path / "spill" / "a.txt"
    assert footer == f"[1 lines/98KB, middle omitted; full: {file}]"
    assert file.read_text() == whole and file.stat().st_mode & 0o777 == 0o600
    assert odd.content == "nul\u2400"


async def test_a_long_result_that_cannot_be_kept_whole_is_still_told(tmp_path: Path) -> None:
    (tmp_path / "spill").write_text("a file where the directory should be")
    [long] = await Turn([tool(echo)], tmp_path / "spill").run(
        use("a", given={"text": "x" * 2 * TOOL_RESULT_CHARS})
    )
    assert not long.is_error
    assert "the whole could not be kept: " in long.content


async def test_the_results_of_one_message_share_a_bound(tmp_path: Path) -> None:
    text = {"text": "x" * TOOL_RESULT_CHARS}
    results = await Turn([tool(echo)], tmp_path).run(*(use(str(n), given=text) for n in range(9)))
    sizes = [len(result.content) for result in results]
    assert sizes[:4] == [TOOL_RESULT_CHARS] * 4
    assert all(RESULT_CHARS_MIN <= size < RESULT_CHARS_MIN + 300 for size in sizes[4:])
    assert sum(sizes) < MESSAGE_RESULTS_CHARS + 5 * (RESULT_CHARS_MIN + 300)


async def test_of_a_result_of_blocks_only_texts_are_cut(tmp_path: Path) -> None:
    image = {"type": "image", "source": {"data": "x" * 2 * TOOL_RESULT_CHARS}}
    text = {"type": "text", "text": "y" * 2 * TOOL_RESULT_CHARS}

    async def both(_params: Params, _ctx: ToolContext) -> ToolResult:
        return ToolResult([text, image])

    [result] = await Turn([tool(both)], tmp_path).run(use("a"))
    assert result.content[1] == image
    assert isinstance(result.content[0], dict) and len(result.content[0]["text"]) < 51_000


async def test_a_call_past_its_deadline_is_ended_and_says_so() -> None:
    async def forever(_params: Params, _ctx: ToolContext) -> ToolResult:
        await asyncio.Event().wait()
        raise AssertionError

    spec = dataclasses.replace(tool(forever), timeout_s=0.01)
    [result] = await Turn([spec]).run(use("a"))
    assert (result.content, result.is_error) == (
        "tool was ended: it took longer than 0.01 s",
        True,
    )


async def test_a_timeout_of_something_in_the_handler_is_not_the_call_s_deadline() -> None:
    async def times_out(_params: Params, _ctx: ToolContext) -> ToolResult:
        raise TimeoutError("of the network")

    spec = dataclasses.replace(tool(times_out), timeout_s=5)
    [result] = await Turn([spec]).run(use("a"))
    assert result.content == "tool failed: TimeoutError: of the network"


async def test_who_admits_a_call_may_change_it() -> None:
    turn = Turn([tool(echo)])

    async def admit(call: ToolCall) -> ToolCall:
        return dataclasses.replace(call, params=Params(text="changed"))

    turn.admit = admit
    assert [result.content for result in await turn.run(use("a"))] == ["changed"]


async def test_what_follows_a_call_may_add_to_its_result_and_its_failure_costs_nothing() -> None:
    turn = Turn([tool(echo)])

    async def after(call: ToolCall, result: ToolResult) -> ToolResult:
        if call.id == "broken":
            raise RuntimeError
        return dataclasses.replace(result, content=f"{result.content}!")

    turn.after = after
    results = await turn.run(use("a"), use("broken"))
    assert [result.content for result in results] == ["a!", "broken"]


async def test_a_call_that_has_happened_keeps_its_result_when_cancelled_in_what_follows() -> None:
    following = asyncio.Event()
    turn = Turn([tool(echo)])

    async def after(_call: ToolCall, _result: ToolResult) -> ToolResult:
        following.set()
        await asyncio.Event().wait()
        raise AssertionError

    turn.after = after
    running = asyncio.create_task(turn.run(use("a"), use("b")))
    await following.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert {call_id: result.content for call_id, result in turn.ended.items()} == {"a": "a"}
