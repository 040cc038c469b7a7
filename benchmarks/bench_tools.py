"""What a tool call costs besides the tool: dispatch, the permission decision, the sandbox.

Run as `python benchmarks/bench_tools.py`. What is compared takes turns within each round, so that a
noisy moment hits all of it; compare within one run only.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import BaseModel, ConfigDict

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.figures import since, single, times
from session_worker.permissions.verdict import decide
from session_worker.sandbox import Launcher, Level, SandboxWish, obtain
from session_worker.tools import process
from session_worker.tools.bash import BASH
from session_worker.tools.dispatch import Steps, ToolCall, ToolUse, dispatch
from session_worker.tools.read_file import READ_FILE
from session_worker.tools.spec import Shell, ToolContext, ToolResult, ToolSpec
from tests.support.permissions import bash, policy

ROUNDS = 100
REPEATS = 20
"""Calls of one timing, of what takes less than a millisecond."""
AIMS = {Level.NONE: 3.0, Level.GUARD: 1.3, Level.JAIL: 5.0}
"""Of a call of bash: without a sandbox, times a bare `bash -c true`; with one, times without."""
COMMANDS = {
    "ls": "ls -la src",
    "git and a pipe": "git log --oneline -20 | head -5 && git status --short",
    "a loop with substitutions": 'for f in $(ls *.py); do wc -l "$f" > "out/$f"; done; cd sub',
    "100 commands": "; ".join(f"grep -rn word{n} src/" for n in range(100)),
}

Act = Callable[[], Awaitable[object]]


class Nothing(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = ""


async def nothing(_params: Nothing, _ctx: ToolContext) -> ToolResult:
    return ToolResult("nothing")


NOOP = ToolSpec("noop", "", Nothing, nothing, "other", True, lambda params: params.text)
TOOLS: dict[str, ToolSpec[Any]] = {spec.name: spec for spec in (NOOP, READ_FILE, BASH)}


async def main() -> None:
    with ExitStack() as stack:
        base = Path(stack.enter_context(TemporaryDirectory(prefix="sc-", dir="/var/tmp")))
        (base / "root").mkdir()
        (base / "root" / "file").write_text("a line\n" * 20)
        ctx = ToolContext(
            "", base / "root", Shell(base / "root"), os.environ, base / "spill", lambda _: None
        )
        await measure_dispatch(ctx)
        measure_decisions()
        await measure_bash(stack, base, ctx)


async def taken(acts: Mapping[str, Act], repeats: int) -> dict[str, float]:
    """Milliseconds of each, in the fastest round: what is left are its own costs."""
    best = dict.fromkeys(acts, float("inf"))
    for _ in range(ROUNDS):
        for name, act in acts.items():
            began = time.perf_counter()
            for _ in range(repeats):
                await act()
            best[name] = min(best[name], since(began) / repeats)
    return best


async def called(ctx: ToolContext, name: str, count: int = 1, **given: Any) -> None:
    """A turn with `count` such calls."""

    async def admit(call: ToolCall) -> ToolCall:
        return call

    async def on_start(_call: ToolCall) -> None: ...

    async def after(_call: ToolCall, result: ToolResult) -> ToolResult:
        return result

    def on_end(_use: ToolUse, result: ToolResult) -> None:
        assert not result.is_error, result.content

    uses = [{"id": f"toolu_{n}", "name": name, "input": given} for n in range(count)]
    steps = Steps(lambda call: replace(ctx, call_id=call.id), admit, on_start, after, on_end)
    await dispatch(uses, TOOLS, steps)


async def measure_dispatch(ctx: ToolContext) -> None:
    read = READ_FILE.params(path="file")
    ms = await taken(
        {
            "noop": partial(called, ctx, "noop"),
            "noop, 8 in a turn": partial(called, ctx, "noop", 8),
            "read_file": partial(called, ctx, "read_file", path="file"),
            "read_file, without dispatch": lambda: READ_FILE.handler(read, ctx),
        },
        REPEATS,
    )
    single("dispatch of a tool that does nothing", 1000 * ms["noop"], "us", 200)
    single("  of 8 of them in a turn, each", 1000 * ms["noop, 8 in a turn"] / 8, "us")
    single("read_file of 20 lines", 1000 * ms["read_file"], "us")
    single("  without dispatch", 1000 * ms["read_file, without dispatch"], "us")


def measure_decisions() -> None:
    for name, command in COMMANDS.items():
        best = min(times(partial(decide, bash(command), policy()), ROUNDS))
        single(f"permission decision: {name}", 1000 * best, "us", 1000 if name == "ls" else None)


async def measure_bash(stack: ExitStack, base: Path, ctx: ToolContext) -> None:
    acts: dict[str, Act] = {"bare": partial(bare, ctx.root)}
    for level in Level:
        got = obtain(SandboxWish(level), [ctx.root], [base / "private"])
        if got.level != level:
            print(f"{level}: not here: {got.detail['missing'][level]}")
            continue
        launcher = Launcher(got, [ctx.root], base / "spill", [base / "private"])
        stack.enter_context(closing(launcher))
        inside = replace(ctx, launch=launcher.start)
        acts[level] = partial(called, inside, "bash", command="true")
    ms = await taken(acts, 1)
    single("bash -c true, bare", ms["bare"], "ms")
    for level in filter(ms.__contains__, Level):
        single(f"bash true, {level}", ms[level], "ms")
        than = "bare" if level == Level.NONE else Level.NONE
        single(f"  than {than}, fastest rounds", ms[level] / ms[than], "x", AIMS[level])


async def bare(root: Path) -> None:
    process.start(["bash", "-c", "true"], root, os.environ, sys.stdout.fileno()).wait()


if __name__ == "__main__":
    asyncio.run(main())
