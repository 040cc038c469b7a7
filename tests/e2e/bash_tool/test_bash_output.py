"""The bash tool with a real bash: much output, odd output, live output."""

import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from session_worker.tools.truncate import clean
from sidecar.protocol.bounds import (
    BASH_OUTPUT_BYTES,
    BASH_RESULT_CHARS,
    KIB,
    MIB,
    TOOL_OUTPUT_BYTES,
)
from tests.support.bash_bench import Bench, body, footer, linux

MEMORY_GROWTH_BYTES = 16 * MIB
"""The worker may grow by this for any output: a few times what it reads of a file at once."""


async def test_long_output_is_cut_in_the_middle_and_kept_in_a_file(bench: Bench) -> None:
    result = await bench.run("seq 100000; exit 1")
    lines = body(result).split("\n")
    file = bench.spill / "call_0.out"
    assert len(body(result)) <= BASH_RESULT_CHARS
    assert lines[:2] == ["1", "2"]
    assert lines[-2:] == ["99999", "100000"]
    assert any(re.fullmatch(r"… \d+ lines/\d+KB omitted …", line) for line in lines)
    assert footer(result) == (
        f"[exit 1 · cwd . · 100000 lines/575KB, middle omitted; full: {file}]"
    )
    assert (result.meta["truncated"], result.meta["file"]) == (True, str(file))
    assert file.read_text().endswith("\n99999\n100000\n")
    assert file.stat().st_mode & 0o777 == 0o600


@contextmanager
def bounded_memory() -> Generator[None]:
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = psutil.Process().memory_info().rss
    yield
    peak_kib = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert peak_kib and int(peak_kib[1]) * KIB - before < MEMORY_GROWTH_BYTES


@linux
async def test_a_flood_is_ended_at_the_cap_and_costs_no_memory(bench: Bench) -> None:
    with bounded_memory():
        result = await bench.run("trap '' TERM; exec seq 1 1000000000")
    file = bench.spill / "call_0.out"
    assert file.stat().st_size == BASH_OUTPUT_BYTES
    assert result.is_error
    assert footer(result).startswith("[ended: more than 64MB of output · cwd . · ")
    lines = body(result).split("\n")
    assert lines[:3] == ["1", "2", "3"]
    # The last line is cut by the cap; those before it are the sequence without a gap.
    assert int(lines[-2]) == int(lines[-1000]) + 998
    assert result.meta["lines"] == int(lines[-2]) + 1


async def test_two_hundred_megabytes_at_once_are_an_error_though_they_exit_with_0(
    bench: Bench,
) -> None:
    result = await bench.run("truncate -s 200M big; cat big")
    assert footer(result).startswith("[ended: more than 64MB of output")
    assert (bench.spill / "call_0.out").stat().st_size == BASH_OUTPUT_BYTES


@linux
async def test_one_giant_line_is_cut_and_costs_no_memory(bench: Bench) -> None:
    with bounded_memory():
        result = await bench.run(f"{sys.executable} -c \"print('x' * 50_000_000)\"")
    assert re.fullmatch(r"x{9000}\n… 48MB omitted …\nx+", body(result))
    assert len(body(result)) <= BASH_RESULT_CHARS
    assert (result.meta["lines"], result.meta["bytes"]) == (1, 50_000_001)


@pytest.mark.parametrize(
    ("script", "seen"),
    [
        (r"printf '\xf0'", "\ufffd"),
        (r"printf '\xe4\xba'; sleep 0.2; printf '\x86\n'", "了"),
        (r"printf 'a\0b'", "a\u2400b"),
        (r"printf '\e[31mred\e[0m \e]0;t\a%s' x", "red x"),
        (r"printf '1%%\r2%%\r3%%\n'", "3%"),
        ("head -c 20000 /dev/urandom", None),
    ],
)
async def test_odd_bytes_harm_nothing(bench: Bench, script: str, seen: str | None) -> None:
    result = await bench.run(script)
    assert footer(result).startswith("[exit 0 · cwd .")
    assert seen in (None, body(result))
    assert [clean(text) for text in bench.live] == bench.live


async def test_output_is_live_while_the_command_runs(bench: Bench) -> None:
    gate = bench.root / "gate"
    os.mkfifo(gate)

    def emit(text: str) -> None:
        bench.live.append(text)
        if text == "one\n":  # the command can only go on because this came before its end
            os.close(os.open(gate, os.O_WRONLY))

    bench.emit = emit
    await bench.run("echo one; read < gate; echo two")
    assert bench.live == ["one\n", "two\n"]


async def test_of_a_burst_only_the_newest_is_live_and_the_rest_is_counted(bench: Bench) -> None:
    await bench.run("head -c 100000 /dev/zero | tr '\\0' x; sleep 0.3; echo end")
    live = "".join(bench.live)
    skipped = sum(map(int, re.findall(r"… (\d+) bytes skipped …\n", live)))
    assert skipped + live.count("x") == 100_000
    assert all(text.count("x") <= TOOL_OUTPUT_BYTES for text in bench.live)
    assert bench.live[-1].endswith("end\n")


async def test_a_command_that_empties_its_output_leaves_no_hole(bench: Bench) -> None:
    """bash opens the file behind /dev/stderr anew: what came before is lost, no more than that."""
    result = await bench.run("seq 3; echo err > /dev/stderr; seq 2")
    assert body(result) == "err\n1\n2"
