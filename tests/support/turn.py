"""One turn's tool calls through the dispatcher, with tools that tests make up."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from session_worker.tools.dispatch import Steps, ToolCall, ToolUse, dispatch
from session_worker.tools.spec import Shell, ToolContext, ToolResult, ToolSpec


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = ""
    count: int = Field(1, ge=1)


Handler = Callable[[Params, ToolContext], Awaitable[ToolResult]]


def tool(handler: Handler, name: str = "tool", read_only: bool = False) -> ToolSpec[Params]:
    return ToolSpec(name, "does it", Params, handler, "other", read_only, lambda p: p.text)


@dataclass
class Turn:
    """One dispatch: the tools it has, and what its callbacks were told in which order."""

    specs: list[ToolSpec[Params]]
    spill: Path = Path("/nowhere")
    log: list[str] = field(default_factory=list[str])
    ended: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])

    def context(self, call: ToolCall) -> ToolContext:
        return ToolContext(call.id, Path(), Shell(Path()), {}, self.spill, self.log.append)

    async def admit(self, call: ToolCall) -> ToolCall | str:
        return "not now" if call.id == "denied" else call

    async def after(self, _call: ToolCall, result: ToolResult) -> ToolResult:
        return result

    async def on_start(self, call: ToolCall) -> None:
        self.log.append(f"start {call.id}")

    def on_end(self, use: ToolUse, result: ToolResult) -> None:
        self.log.append(f"end {use['id']}")
        self.ended[use["id"]] = result

    async def run(self, *uses: ToolUse) -> list[ToolResult]:
        tools = {spec.name: spec for spec in self.specs}
        steps = Steps(self.context, self.admit, self.on_start, self.after, self.on_end)
        return await dispatch(uses, tools, steps)


def use(call_id: str, name: str = "tool", given: Any = None) -> ToolUse:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given or {}}


async def echo(params: Params, ctx: ToolContext) -> ToolResult:
    return ToolResult(params.text or ctx.call_id)
