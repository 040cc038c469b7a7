"""Dispatch of calls that code at the API makes: all at once, in time, and in text."""

import asyncio
import base64
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from session_worker.tools import dispatch
from session_worker.tools.dispatch import ToolCall, ToolUse
from session_worker.tools.spec import Shell, ToolContext, ToolResult
from sidecar.protocol.bounds import (
    BASH_KILL_S,
    BASH_TERM_GRACE_S,
    CODE_ASK_S,
    CODE_CALL_GRACE_S,
    CODE_CALL_S,
    PARALLEL_TOOLS,
)
from tests.support.turn import Params, Turn, echo, tool, use

CALLER = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
TIMEOUT_S = 240
"""After which the code gives up, at the earliest (anthropic.md §3.2)."""
KILL_S = BASH_TERM_GRACE_S + BASH_KILL_S
"""To end a command that does not want to end."""


def by_code(call_id: str, name: str = "tool", given: Any = None) -> ToolUse:
    return {**use(call_id, name, given), "caller": CALLER}


class Crowd:
    """A handler that says how many of it were at work at once."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def __call__(self, params: Params, ctx: ToolContext) -> ToolResult:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(10):
            await asyncio.sleep(0)
        self.now -= 1
        return ToolResult(ctx.call_id)


async def forever(_params: Params, _ctx: ToolContext) -> ToolResult:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that waits for nothing."""
    monkeypatch.setattr(dispatch, "CODE_CALL_S", 0.02)
    monkeypatch.setattr(dispatch, "CODE_CALL_GRACE_S", 0.02)


async def test_all_calls_of_code_run_at_once_up_to_a_bound_and_answer_in_their_order() -> None:
    crowd = Crowd()
    ids = [str(n) for n in range(3 * PARALLEL_TOOLS)]
    results = await Turn([tool(crowd)]).run(*map(by_code, ids))
    assert [result.content for result in results] == ids
    assert crowd.most == PARALLEL_TOOLS
    alone = Crowd()
    await Turn([tool(alone)]).run(*map(use, ids[:3]))
    assert alone.most == 1, "what the model itself asks for may change things one by one"


async def test_a_direct_call_that_reads_runs_beside_no_call_of_code() -> None:
    crowd = Crowd()
    await Turn([tool(crowd, read_only=True)]).run(by_code("a"), use("b"), by_code("c"))
    assert crowd.most == 1


async def test_two_edits_of_code_are_never_one() -> None:
    crowd = Crowd()
    edit = dataclasses.replace(tool(crowd), family="edit")
    await Turn([edit]).run(*(by_code(str(n)) for n in range(4)))
    assert crowd.most == 1


async def test_code_reads_text_and_a_note_of_where_the_rest_is(tmp_path: Path) -> None:
    data = base64.b64encode(b"pixels").decode()
    image = {"type": "image", "source": {"media_type": "image/png", "data": data}}
    odd = {"type": "document", "source": {"type": "url", "url": "x"}}

    async def both(_params: Params, _ctx: ToolContext) -> ToolResult:
        return ToolResult([{"type": "text", "text": "see"}, image, odd])

    turn = Turn([tool(both)], tmp_path / "spill")
    [result] = await turn.run(by_code("a"))
    assert isinstance(result.content, str)
    text, note, other = result.content.split("\n")
    assert (text, other) == ("see", "[document: cannot be shown to code]")
    where = re.fullmatch(r"\[image: image/png, 6B; saved to (.+\.png)\]", note)
    assert where and Path(where[1]).read_bytes() == b"pixels"
    [direct] = await turn.run(use("b"))
    assert direct.content[1] == image


async def test_what_cannot_be_kept_is_told_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "spill").write_text("a file where the directory should be")
    image = {"type": "image", "source": {"media_type": "image/png", "data": ""}}

    async def picture(_params: Params, _ctx: ToolContext) -> ToolResult:
        return ToolResult([image])

    [result] = await Turn([tool(picture)], tmp_path / "spill").run(by_code("a"))
    assert "[image: image/png; it could not be kept: " in result.content


@pytest.mark.usefixtures("hurried")
async def test_a_call_that_code_waits_for_too_long_is_ended_and_says_so() -> None:
    slow = dataclasses.replace(tool(forever), timeout_s=3600.0)
    for spec in (slow, tool(forever)):
        [result, fine] = await Turn([spec, tool(echo, "echo")]).run(
            by_code("a"), by_code("b", "echo")
        )
        assert result.is_error and result.content.startswith("tool was ended: code that calls")
        assert fine.content == "b"


@pytest.mark.usefixtures("hurried")
async def test_the_own_time_of_a_tool_holds_where_it_is_shorter() -> None:
    hasty = dataclasses.replace(tool(forever), timeout_s=0.001)
    [result] = await Turn([hasty]).run(by_code("a"))
    assert result.content == "tool was ended: it took longer than 0.001 s"


@pytest.mark.usefixtures("hurried")
async def test_a_call_that_is_not_let_through_in_time_does_not_run() -> None:
    turn = Turn([tool(echo)])

    async def never(_call: ToolCall) -> ToolCall | str:
        return await asyncio.Event().wait() and ""

    turn.admit = never
    [result] = await turn.run(by_code("a"))
    assert result.is_error and result.content.startswith("tool was not run: the code")
    assert turn.log == ["end a"]


@pytest.mark.usefixtures("hurried")
async def test_what_follows_a_call_for_too_long_costs_no_result() -> None:
    turn = Turn([tool(echo)])

    async def never(_call: ToolCall, result: ToolResult) -> ToolResult:
        await asyncio.Event().wait()
        return result

    turn.after = never
    [result] = await turn.run(by_code("a"))
    assert (result.content, result.is_error) == ("a", False)


async def test_a_tool_that_keeps_its_own_time_is_told_how_much_there_is() -> None:
    now = asyncio.get_running_loop().time()
    context = ToolContext("a", Path(), Shell(Path()), {}, Path(), lambda _: None)
    assert context.within(600) == 600
    hurried = dataclasses.replace(context, until=now + 100)
    assert 98 <= hurried.within(600) <= 100
    assert hurried.within(5) == 5
    assert dataclasses.replace(context, until=now - 1).within(5) == 1


def test_whatever_happens_the_code_has_its_result_before_it_gives_up() -> None:
    assert CODE_CALL_S + CODE_CALL_GRACE_S + KILL_S < TIMEOUT_S
    assert CODE_ASK_S < CODE_CALL_S, "who is allowed late can still run"
