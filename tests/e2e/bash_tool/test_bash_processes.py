"""The bash tool with a real bash: what runs on after a call, and that all else is ended."""

import asyncio
import errno
import os
import signal

import psutil
import pytest

from session_worker.tools import command, process
from tests.support.bash_bench import DYING_S, Bench, body, footer, is_alive, is_zombie, linux


async def test_a_call_returns_while_its_background_child_lives_and_says_so(bench: Bench) -> None:
    result = await bench.run("sleep 300 & echo $!")
    pid = int(body(result))
    assert is_alive(pid)
    assert footer(result) == (
        f"[exit 0 · cwd . · still running as job-1 until the session ends: pid {pid};"
        f" output: {bench.spill}/call_0.out]"
    )
    assert not result.is_error
    assert bench.files() == ["call_0.out"]
    assert await process.end_group(os.getpgid(pid)) == []


@linux
async def test_a_child_that_left_the_group_is_noted(bench: Bench) -> None:
    left = "read -r _ _ _ _ _ sid _ < /proc/$!/stat; [ $sid = $! ]"
    result = await bench.run(f"setsid sleep 300 & until {left}; do :; done; echo $!")
    pid = int(body(result))
    assert is_alive(pid)
    assert f"still running as job-1 until the session ends: pid {pid};" in footer(result)
    os.kill(pid, signal.SIGKILL)


async def test_many_background_children_are_not_all_named(bench: Bench) -> None:
    result = await bench.run("for n in {1..15}; do sleep 300 & done; echo $$")
    assert footer(result).count(", ") == 10
    assert ", …; output:" in footer(result)
    await process.end_group(int(body(result)))


async def test_output_of_a_process_substitution_is_not_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "BASH_WATCH_S", DYING_S)
    result = await bench.run("exec > >(sleep 0.1; cat); echo hi")
    assert (body(result), footer(result)) == ("hi", "[exit 0 · cwd .]")


async def test_a_timeout_ends_a_group_that_ignores_sigterm(bench: Bench) -> None:
    result = await bench.run("trap '' TERM; echo $$; sleep 300; sleep 300", timeout_s=1)
    pid = int(body(result))
    assert result.is_error
    assert footer(result).startswith("[ended: timed out after 1s · cwd .")
    assert (result.meta["exit_code"], result.meta["signal"]) == (None, "SIGKILL")
    assert process.group_members(pid) == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_timeout_gives_a_command_time_to_clean_up(bench: Bench) -> None:
    result = await bench.run("trap 'echo cleaned; exit 3' TERM; sleep 300 & wait", timeout_s=1)
    assert body(result) == "cleaned"
    assert (result.is_error, result.meta["exit_code"]) == (True, 3)


@pytest.mark.parametrize("cancels", [pytest.param(1, marks=pytest.mark.soak), 3])
async def test_a_cancelled_call_leaves_neither_process_nor_file(bench: Bench, cancels: int) -> None:
    started = asyncio.Event()

    def emit(text: str) -> None:
        bench.live.append(text)
        started.set()

    bench.emit = emit
    call = asyncio.create_task(bench.run("trap '' TERM; echo $$; sleep 300 & wait; sleep 300"))
    await started.wait()
    pid = int(bench.live[0])
    assert is_alive(pid)
    for _ in range(cancels):
        call.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await call
    assert process.group_members(pid) == []
    assert bench.files() == []


async def test_an_exception_while_a_command_runs_ends_it(bench: Bench) -> None:
    def emit(text: str) -> None:
        bench.live.append(text)
        raise RuntimeError

    bench.emit = emit
    with pytest.raises(RuntimeError):
        await bench.run("echo $$; sleep 300")
    assert process.group_members(int(bench.live[0])) == []


@linux
async def test_a_group_of_zombies_alone_is_gone(bench: Bench) -> None:
    """Its last process is an orphan, so it is a zombie until this test, its reaper, reaps it."""
    result = await bench.run("sleep 300 & echo $! $$")
    pid, pgid = map(int, body(result).split())
    assert await process.end_group(pgid) == []
    os.killpg(pgid, 0)
    assert is_zombie(psutil.Process(pid))
    assert process.group_members(pgid) == []


async def test_a_group_that_does_not_die_is_reported(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = await bench.run("sleep 300 & echo $! $$")
    pid, pgid = map(int, body(result).split())
    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", lambda pgid, number: None)
        patch.setattr(process, "BASH_KILL_S", 0)
        assert await process.end_group(pgid, grace_s=0) == [pid]
    assert await process.end_group(pgid) == []


@linux
async def test_exits_are_seen_without_a_pidfd(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_pidfd(_pid: int) -> int:
        raise OSError(errno.ENOSYS, "no pidfd")

    monkeypatch.setattr(os, "pidfd_open", no_pidfd)
    assert footer(await bench.run("sleep 0.05; exit 3")) == "[exit 3 · cwd .]"
