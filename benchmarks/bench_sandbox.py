"""What each level of the sandbox adds to a command, and what finding it out costs a session.

Run as `python benchmarks/bench_sandbox.py`. The levels take turns within each round, so that a
noisy moment hits them all; compare within one run only.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.figures import row, since, single, times
from session_worker.sandbox import Launcher, Level, SandboxWish, obtain

ROUNDS = 100
AIMS = {Level.GUARD: 1.3, Level.JAIL: 5.0}
"""Times what `bash -c true` takes without; supervision.md §d: 1.1 and 2.9, hiding less."""


def main() -> None:
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sc-", dir="/var/tmp")))
        output = os.open(os.devnull, os.O_WRONLY)
        stack.callback(os.close, output)
        (base / "root").mkdir()
        launchers: dict[Level, Launcher] = {}
        for level in Level:
            got = obtain(SandboxWish(level), [base / "root"], [base / "private"])
            if got.level != level:
                print(f"{level}: not here: {got.detail['missing'][level]}")
                continue
            launcher = Launcher(got, [base / "root"], base / "spill", [base / "private"])
            launchers[level] = stack.enter_context(closing(launcher))
        for level in filter(launchers.__contains__, AIMS):
            wish = SandboxWish(level)
            row(f"{level}: finding out that it works", times(partial(obtain, wish, [], [])))
        for script in ("true", "ls >/dev/null; ls >/dev/null"):
            measure(launchers, script, base / "root", output)


def measure(launchers: dict[Level, Launcher], script: str, root: Path, output: int) -> None:
    taken: dict[Level, list[float]] = {level: [] for level in launchers}
    for _ in range(ROUNDS):
        for level, launcher in launchers.items():
            began = time.perf_counter()
            launcher.start(["bash", "-c", script], root, os.environ, output).wait()
            taken[level].append(since(began))
    for level, values in taken.items():
        row(f"{level}: bash -c '{script}'", values)
    for level in filter(launchers.__contains__, AIMS):
        ratio = min(taken[level]) / min(taken[Level.NONE])
        single(f"  {level}, fastest rounds", ratio, "x", AIMS[level] if script == "true" else None)


if __name__ == "__main__":
    main()
