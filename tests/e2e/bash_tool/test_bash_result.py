"""The bash tool with a real bash: what the model is told, and in which surroundings it runs."""

import asyncio
import os
from pathlib import Path

import pytest

from session_worker.tools.bash import BASH, BashParams
from session_worker.tools.dispatch import Steps, ToolCall, dispatch
from session_worker.tools.spec import ToolResult
from sidecar.protocol.bounds import BASH_ARGV_BYTES, PARALLEL_TOOLS
from tests.support.bash_bench import Bench, body, footer, linux


async def test_output_comes_with_exit_code_and_directory_and_no_file_stays(bench: Bench) -> None:
    result = await bench.run("echo out; echo err >&2; echo out again")
    assert body(result) == "out\nerr\nout again"
    assert footer(result) == "[exit 0 · cwd .]"
    assert not result.is_error
    assert result.meta.pop("seconds") >= 0
    assert result.meta == {
        "exit_code": 0,
        "signal": None,
        "bytes": 18,
        "lines": 3,
        "truncated": False,
        "file": None,
    }
    assert bench.files() == []


async def test_a_failing_command_is_an_error_with_its_output(bench: Bench) -> None:
    result = await bench.run("echo why; exit 7")
    assert (body(result), footer(result)) == ("why", "[exit 7 · cwd .]")
    assert result.is_error


async def test_a_silent_command_says_so(bench: Bench) -> None:
    assert body(await bench.run("true")) == "(no output)"


async def test_a_killed_bash_is_an_error_that_names_the_signal(bench: Bench) -> None:
    result = await bench.run("kill -KILL $$")
    assert footer(result) == "[killed by SIGKILL · cwd .]"
    assert (result.meta["exit_code"], result.meta["signal"]) == (None, "SIGKILL")
    assert result.is_error


@linux
async def test_a_real_time_signal_has_a_number(bench: Bench) -> None:
    result = await bench.run("kill -40 $$")
    assert result.meta["signal"] == "signal 40"


@pytest.mark.parametrize(
    "script",
    ["echo nul\0", '["ls", "-l"]', ' {"command": "ls"}', "echo \ud83d"],
)
async def test_what_cannot_be_a_script_is_refused_and_not_run(bench: Bench, script: str) -> None:
    result = await bench.run(script)
    assert result.is_error
    assert "command" in result.content
    assert not bench.spill.exists()


@pytest.mark.parametrize("script", ["[ -d . ]", "{ true; }", "[[ a == a ]]", "[" * 100_000])
async def test_brackets_of_bash_are_no_json(bench: Bench, script: str) -> None:
    assert "exit" in footer(await bench.run(script))


async def test_a_syntax_error_shows_the_script_and_not_our_code(bench: Bench) -> None:
    result = await bench.run("echo )")
    assert "trap" not in result.content
    assert body(result).endswith("line 1: `echo )'")
    assert footer(result) == "[exit 2 · cwd .]"


async def test_bash_that_cannot_be_started_is_an_error(bench: Bench) -> None:
    bench.env["PATH"] = str(bench.root)
    result = await bench.run("true")
    assert result.is_error
    assert result.content.startswith("bash could not be started: ")
    assert bench.files() == []


def test_a_person_sees_the_command_before_its_description() -> None:
    def title(script: str, description: str | None = None) -> str:
        return BASH.render(BashParams(command=script, description=description))

    assert title("rm -rf build", "List files") == "rm -rf build — List files"
    assert title("\nfirst\nsecond\n") == "first…"
    assert title("echo \x1b[31m\ud83d", "two\nlines") == "echo \ufffd — two lines"
    assert title("x" * 1000) == "x" * 200 + "…"


async def test_no_key_of_ours_and_nothing_interactive_is_in_the_environment(bench: Bench) -> None:
    bench.env = {
        "PATH": os.environ["PATH"],
        "ANTHROPIC_API_KEY": "secret",
        "SIDECAR_HOME": "private",
        "SIDECAR_SESSION": "id",
        "PAGER": "less",
    }
    seen = dict(line.split("=", 1) for line in body(await bench.run("env")).splitlines())
    for own in ("PWD", "SHLVL", "_", "OLDPWD"):
        seen.pop(own, None)
    assert seen == {
        "PATH": os.environ["PATH"],
        "SIDECAR_SESSION": "id",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.bareRepository",
        "GIT_CONFIG_VALUE_0": "explicit",
        "GIT_EDITOR": "true",
    }


async def test_what_a_command_makes_is_not_private(bench: Bench) -> None:
    before = os.umask(0o077)  # as in the worker
    try:
        assert body(await bench.run("umask")) == "0022"
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("script", "seen"),
    [
        ("read x; echo rc=$?", "rc=1"),
        ("cat; echo rc=$?", "rc=0"),
        ("{ cat </dev/tty; } 2>/dev/null; echo rc=$?", "rc=1"),
        ("[ -t 0 ] || [ -t 1 ] || echo no terminal", "no terminal"),
    ],
)
async def test_a_command_that_asks_fails_fast(bench: Bench, script: str, seen: str) -> None:
    assert body(await bench.run(script)) == seen


async def test_a_script_above_the_argument_limit_runs_from_a_file(bench: Bench) -> None:
    comment = "# " + "é" * (128 * 1024)
    script = f"{comment}\ncd ..; echo [$#]\n)"
    assert len(script.encode()) > BASH_ARGV_BYTES
    result = await bench.run(script)
    assert body(result).startswith(f"[0]\n{bench.spill}/call_0.sh: line 3: syntax error")
    assert bench.shell.cwd == bench.root.parent
    assert bench.files() == []


async def test_call_ids_that_are_taken_or_odd_name_files_in_the_folder(bench: Bench) -> None:
    victim = bench.root / "victim"
    bench.spill.mkdir()
    (bench.spill / "a_b.out").symlink_to(victim)
    for call_id in ("a/b", "a/b", "../../x" * 100, "é"):
        await bench.run("seq 100000", call_id)
    assert bench.files() == [
        "_.out",
        ("______x" * 10)[:64] + ".out",
        "a_b-1.out",
        "a_b-2.out",
        "a_b.out",
    ]
    assert not victim.exists()


async def test_parallel_calls_do_not_mix(bench: Bench) -> None:
    results = await asyncio.gather(
        *(bench.run(f"for i in 1 2 3; do echo {n}; done", "same") for n in range(PARALLEL_TOOLS))
    )
    assert [body(result) for result in results] == [f"{n}\n{n}\n{n}" for n in range(PARALLEL_TOOLS)]
    assert bench.files() == []


async def test_calls_of_one_turn_run_one_after_the_other(bench: Bench) -> None:
    async def admit(call: ToolCall) -> ToolCall:
        return call

    async def on_start(_call: ToolCall) -> None: ...

    async def after(_call: ToolCall, result: ToolResult) -> ToolResult:
        return result

    uses = [
        {"id": "1", "name": "bash", "input": {"command": "mkdir sub && cd sub"}},
        {"id": "2", "name": "bash", "input": {"command": "pwd", "timeout_s": "5"}},
        {"id": "3", "name": "bash", "input": {"command": "pwd", "timeout_s": 601}},
    ]
    steps = Steps(
        lambda call: bench.context(call.id), admit, on_start, after, lambda _use, _result: None
    )
    results = await dispatch(uses, {"bash": BASH}, steps)
    assert body(results[1]) == str(bench.root / "sub")
    assert results[2].content.endswith("timeout_s: Input should be less than or equal to 600")


async def test_no_descriptor_is_left_open(bench: Bench) -> None:
    await bench.run("true")
    before = sorted(Path("/dev/fd").iterdir())
    for script in ("true", "seq 100000", "# " + "x" * BASH_ARGV_BYTES, "exit 1"):
        await bench.run(script)
    bench.env["PATH"] = ""
    await bench.run("true")
    assert sorted(Path("/dev/fd").iterdir()) == before
