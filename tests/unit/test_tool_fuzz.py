"""Whatever a model puts into a tool call, it gets a result, and nothing else happens.

Every case is a call through the dispatcher in a directory full of traps. Seeded: the same cases
every time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from session_worker import blocks, updates
from session_worker.project.skills import Skill
from session_worker.tools.dispatch import Steps, ToolCall, ToolUse, dispatch
from session_worker.tools.spec import Shell, ToolContext, ToolResult
from session_worker.tools.toolbox import BY_NAME
from sidecar.protocol.bounds import ERROR_TEXT_CHARS, TOOL_RESULT_CHARS

TOOLS = {name: spec for name, spec in BY_NAME.items() if name != "web_fetch"}
"""Of a fetch, which needs somebody who answers, test_web_get.py has the like."""
TURN_CALLS = 8
"""Of one turn, at most: calls run beside each other and behind each other."""
SANE = 0.8
"""Of the values: with fewer, almost no call would get past its schema."""
CANCELLED = 0.05
"""Of the turns."""

COMMANDS = (
    "true", "false", "exit 300", "cd sub", "cd ..; pwd", "cd /nowhere", "echo out; echo err >&2",
    "kill -9 $$", "kill $$", "exec true", "(", "for", "'", "cat <<E\nx", "seq 9000", "cat", ": \\",
    "printf '\\xf0\\x28\\0\\e[31m'", "trap : EXIT", "exec >&- 2>&-", "exec 240>&-", "set -e; false",
    "sleep 0.01 &", "setsid sleep 0.01 &", "echo x > /dev/stderr", "pwd >&240", "ulimit -f 0", "#",
    "\n\n", "{}", "[]", '{"command": "ls"}', ": ${x?unset}", "echo \u202e\x7f", ": \0", ": \ud83d",
    f": {'x' * 70_000}", f"# {'y' * 110_000}",
)  # fmt: skip
"""Harmless: no other script runs, and none of these writes a file."""
HOSTILE = (
    "", " ", "\n", ".", "..", "/", "//", "~", "~root", "~nobody/x", "-", "--", "-rf", "*", "**",
    "[", "\0", "a\0b", "\ud83d", "\udc00x", "\u202e", "\x1b[2J", "\x9b1m", "\r\n", "a\nb",
    "\ufeff", "é",
    "e\u0301", "💥", "null", "{}", "${HOME}", "$(id)", "%s%n", "\\", "'\"", "x" * 300, "a/" * 2500,
    "../" * 60, "x" * 70_000, "/dev/zero", "/dev/stdin", "/proc/self/mem", "/proc/self/fd/0",
    "/etc/passwd", "/nowhere/x", "(", "(?", "[z-a]", "a{99999}", "(?<n>x)(?<n>y)", "\\p{L}",
    "(?i)x", "{a,b", "{" * 50, "!(x)", "**/**/**", "[!", "x**", "!*", "job-1", "job-99", "NaN",
)  # fmt: skip
NUMBERS = (0, 1, -1, 2, 10, 2**31, -(2**63), 2**64, 10**400, 0.5, -0.0, 1e308, float("nan"), True)
TEXTS = {
    "f": b"one\ntwo\n", "crlf": b"a\r\nb\r\n", "bom": b"\xef\xbb\xbfx\n", "empty": b"",
    "utf16": "x\n".encode("utf-16"), "binary": bytes(range(256)), "long": b"x" * 300_000,
    "latin": b"caf\xe9\n", "sub/g.py": b"import f\n", "sub/deep/h.py": b"\x1b[31m\n",
    "a.png": b"\x89PNG\r\n\x1a\n", "a.pdf": b"%PDF-1.7", ".gitignore": b"*.py\n[\n",
    "e\u0301": b"accent", "new\nline": b"x",
}  # fmt: skip
LINKS = {
    "out": "../outside", "file_out": "../outside/secret", "loop": "loop", "in": "sub",
    "dangling": "nothing", "dangling_out": "../outside/new", "zero": "/dev/zero",
}  # fmt: skip
PATHS = (
    *TEXTS, *LINKS, "pipe", "sub", "./sub//deep/", "f/", "new/file", "sub/../f", "out/secret",
    "in/../out/secret", "out/new", "../outside/secret", "../outside/new", "../outside", "~/secret",
    "../root2/f", "../spill/x.txt", "\udcff",
)  # fmt: skip
SANE_VALUES: dict[str, Sequence[Any]] = {
    "command": COMMANDS,
    "path": PATHS,
    "workdir": ("sub", ".", "..", "out"),
    "content": ("", "one\ntwo\n", "\r\n", "x" * 5000, "é\u2028"),
    "edits": (
        [{"old_string": "one", "new_string": "two"}],
        [{"old_string": "x", "new_string": "", "replace_all": True}],
        [{"old_string": "two", "new_string": "\n"}, {"old_string": "\n", "new_string": "one"}],
    ),
    "pattern": ("*", "**/*.py", "*/", "x", "^", "(one|two)$", "import", "a\\nb", "../*", "~/**"),
    "glob": ("*.py", "!*.py", "sub/**"),
    "mode": ("content", "files", "count"),
    "todos": ([], [{"content": "x", "status": "pending"}]),
    "job_id": ("job-1", "job-2"),
    "block_s": (0, 0.01),
    "name": ("known", "gone"),
    "args": ("x", "$ARGUMENTS"),
    "timeout_s": (10,),
    "description": HOSTILE,
    "prompt": HOSTILE,
}
"""By the names of parameters; others take numbers and truth values."""


def anything(chance: random.Random) -> Any:
    makers: Sequence[Callable[[], Any]] = (
        lambda: chance.choice(HOSTILE),
        lambda: chance.choice(NUMBERS),
        lambda: chance.choice((None, [], {}, [None], {"": ""}, [[]] * 50, "x" * 1_000_000)),
        lambda: nested(chance),
        lambda: "".join(chr(chance.randrange(0x3000)) for _ in range(chance.randrange(40))),
    )
    return chance.choice(makers)()


def nested(chance: random.Random) -> Any:
    value: Any = chance.choice(HOSTILE)
    for _ in range(chance.choice((1, 3, 100))):
        value = [value] if chance.random() < 0.5 else {"a": value}
    return value


def arguments(name: str, chance: random.Random) -> Any:
    """For a call of this tool: mostly what it takes, and at times anything at all."""
    if chance.random() < 0.05:
        raw = {"INVALID_JSON": chance.choice((*HOSTILE, "{" * 100_000, '{"a": "\\ud83d"}'))}
        return chance.choice((anything(chance), raw))
    given: dict[str, Any] = {}
    for field, info in TOOLS[name].params.model_fields.items():
        if chance.random() < (0.95 if info.is_required() else 0.4):
            sane = chance.random() < SANE or field == "command"
            values = SANE_VALUES.get(field, (*NUMBERS[:5], True, False))
            given[field] = chance.choice(values) if sane else anything(chance)
    if chance.random() < 0.02:
        given[chance.choice(HOSTILE)] = anything(chance)
    return given


def calls(number: int, chance: random.Random) -> list[ToolUse]:
    """Those of one turn."""
    names = [chance.choice(list(TOOLS)) for _ in range(chance.randint(1, TURN_CALLS))]
    ids = [f"toolu_{number}_{n}" for n in range(len(names))]
    odd = chance.random() < 0.1
    return [
        {
            "id": chance.choice(HOSTILE) if odd else call_id,
            "name": chance.choice(HOSTILE) if chance.random() < 0.01 else name,
            "input": arguments(name, chance),
        }
        for call_id, name in zip(ids, names, strict=True)
    ]


async def answer(prompt: str, _description: str, _ctx: ToolContext) -> ToolResult:
    """In the place of a subagent, which only a daemon can make."""
    return ToolResult(prompt)


class Session:
    """A directory with all kinds of things in it, others next to it, and calls as a turn has."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "root"
        for name in ("root/sub/deep", "outside", "root2", "spill", "skill"):
            (folder / name).mkdir(parents=True)
        for name in ("outside/secret", "root2/f", "skill/SKILL.md"):
            (folder / name).write_text("---\nname: known\n---\nsecret")
        for name, data in TEXTS.items():
            (self.root / name).write_bytes(data)
        (self.root / os.fsdecode(b"\xff")).write_bytes(b"bytes")
        for name, target in LINKS.items():
            (self.root / name).symlink_to(target)
        os.mkfifo(self.root / "pipe")
        skills = {
            name: Skill(name, "", "", folder / "skill" / file, None)
            for name, file in {"known": "SKILL.md", "gone": "gone"}.items()
        }
        self.context = ToolContext(
            call_id="",
            root=self.root,
            shell=Shell(self.root),
            env={"HOME": str(folder / "outside"), "PATH": os.environ["PATH"]},
            spill_dir=folder / "spill",
            emit_output=lambda text: self.check_json(text),
            extra_roots=(folder / "spill",),
            skills=skills,
            delegate=answer,
        )
        self.before = self.outside()
        self.outcomes: Counter[tuple[str, bool]] = Counter()

    def outside(self) -> dict[str, tuple[int, int, bytes]]:
        """What no call may change."""
        found = [self.folder]
        for name in ("outside", "root2", "skill"):
            found += [self.folder / name, *(self.folder / name).rglob("*")]
        return {
            str(path): (s.st_mtime_ns, s.st_ino, path.read_bytes() if path.is_file() else b"")
            for path in found
            if (s := path.lstat())
        }

    async def turn(self, uses: list[ToolUse], cancel_s: float | None) -> None:
        async def admit(call: ToolCall) -> ToolCall:
            return call

        async def on_start(call: ToolCall) -> None:
            self.check_json(call.shown(self.root))

        async def after(_call: ToolCall, result: ToolResult) -> ToolResult:
            return result

        def context(call: ToolCall) -> ToolContext:
            return dataclasses.replace(self.context, call_id=call.id)

        task = asyncio.create_task(
            dispatch(uses, TOOLS, Steps(context, admit, on_start, after, self.check))
        )
        if cancel_s is None:
            assert len(await task) == len(uses)
            return
        await asyncio.wait([task], timeout=cancel_s)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    def check(self, use: ToolUse, result: ToolResult) -> None:
        """Whether a result can be sent to the model and to clients."""
        self.outcomes[use["name"], result.is_error] += 1
        self.check_json([updates.tool_call_ended("id", result), result.plan])
        block = blocks.tool_result("toolu_1", result.content, is_error=result.is_error)
        json.dumps(block, ensure_ascii=False).encode()
        report = blocks.Report()
        blocks.clean("user", [block], report)
        assert not report.damaged, report.changes
        if isinstance(result.content, str):
            limit = TOOL_RESULT_CHARS + ERROR_TEXT_CHARS
            assert 0 < len(result.content) <= limit

    @staticmethod
    def check_json(value: Any) -> None:
        json.dumps(value, allow_nan=False).encode()


@pytest.mark.parametrize(
    ("seed", "cases"), [(1, 500), pytest.param(2, 10_000, marks=pytest.mark.soak)]
)
@pytest.mark.timeout(900)
async def test_no_input_of_any_tool_does_more_than_give_a_result(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int, cases: int
) -> None:
    chance = random.Random(seed)
    caplog.set_level(logging.WARNING)
    session = Session(tmp_path)
    jobs = session.context.jobs
    process = psutil.Process()
    before = process.children(), process.num_fds()
    watching = asyncio.create_task(jobs.watch_all(lambda: None))
    number = 0
    while session.outcomes.total() < cases:
        number += 1
        uses = calls(number, chance)
        cancel_s = chance.uniform(0, 0.05) if chance.random() < CANCELLED else None
        await session.turn(uses, cancel_s)
        assert [record.getMessage() for record in caplog.records] == [], uses
        assert session.outside() == session.before, uses
    for job in jobs.running():
        await job.ended.wait()
    watching.cancel()
    await asyncio.wait([watching])
    assert (process.children(), process.num_fds()) == before
    left = [*session.root.rglob(".sidecar-*"), *session.context.spill_dir.glob("*.sh")]
    assert left == []
    assert {name for name, is_error in session.outcomes if not is_error} == set(TOOLS)
    assert {name for name, is_error in session.outcomes if is_error} >= set(TOOLS)
