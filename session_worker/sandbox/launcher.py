"""Starts the commands of one session in the sandbox that it got."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from session_worker import oom
from session_worker.sandbox import bwrap, guard, seccomp
from session_worker.sandbox.git import repository_of_worktree
from session_worker.sandbox.level import Level, Obtained, outermost
from session_worker.tools import process


class Launcher:
    """`roots` may be written, and so may the repository of one that is a linked worktree. `spill`
    is where the session's output files are. A jail hides `private`, our own directories.

    With a guard it has one thread, from here to `close`. Raises OSError.
    """

    def __init__(
        self, obtained: Obtained, roots: Sequence[Path], spill: Path, private: Sequence[Path]
    ) -> None:
        self._guard: ThreadPoolExecutor | None = None
        self._jail: bwrap.Jail | None = None
        self._scratch: dict[str, str] = {}
        if obtained.level == Level.NONE:
            return
        spill = spill.resolve()
        scratch = spill / "tmp"
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        roots = outermost(roots)
        found = [repository for root in roots if (repository := repository_of_worktree(root))]
        writable = outermost([*roots, *found])
        if obtained.level == Level.GUARD:
            self._scratch = {"TMPDIR": str(scratch)}
            self._guard = guard.launcher(writable, spill, scratch, network=obtained.network)
            return
        self._scratch = {"TMPDIR": "/tmp"}
        self._filter = bwrap.call_filter()
        hidden = [*(path.resolve() for path in private), *bwrap.secrets(Path.home())]
        self._jail = bwrap.Jail(
            bwrap=obtained.detail["bwrap"],
            roots=[path for path in writable if path in roots],
            repositories=[path for path in writable if path not in roots],
            spill=spill,
            scratch=scratch,
            hidden=hidden,
            network=obtained.network,
        )

    def start(
        self,
        argv: Sequence[str | bytes],
        cwd: Path,
        env: Mapping[str, str],
        output_fd: int,
        pass_fds: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        """As `process.start`; in a jail the child is bwrap, and `argv` ends with it.

        A jail's child answers 128 + n for a signal n, as bash does. Its own end is the end of
        all inside, so no SIGTERM is for it: it would leave nobody time to clean up.
        """
        env = {**env, **self._scratch}
        if self._guard:
            child = self._guard.submit(process.start, argv, cwd, env, output_fd, pass_fds).result()
            oom.child_goes_first(child.pid)
            return child
        if self._jail:
            with seccomp.as_pipe(self._filter) as filter_fd:
                inside = [*self._jail.command(cwd, filter_fd), *argv]
                return process.start(inside, Path("/"), env, output_fd, [*pass_fds, filter_fd])
        return process.start(argv, cwd, env, output_fd, pass_fds)

    def close(self) -> None:
        """What was started lives on."""
        if self._guard:
            self._guard.shutdown()
