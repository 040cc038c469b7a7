"""A session's directories and a launcher of its commands, at one level of the sandbox."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from session_worker.sandbox import Launcher, Level, SandboxUnavailable, SandboxWish, obtain


@dataclass(frozen=True)
class Confined:
    """A launcher with a session's directories, and commands in it."""

    level: Level
    launcher: Launcher
    base: Path
    root: Path
    detail: Mapping[str, Any]

    def start(
        self, argv: list[str], output_fd: int, *pass_fds: int, **env: str
    ) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "SIDECAR_SESSION": self.base.name, **env}
        return self.launcher.start(argv, self.root, environment, output_fd, pass_fds)

    def run(self, argv: list[str]) -> tuple[int, str]:
        """Exit code and output."""
        with (self.base / "spill" / "output").open("w+b", buffering=0) as output:
            code = self.start(argv, output.fileno()).wait()
            return code, (self.base / "spill" / "output").read_text()

    def bash(self, script: str) -> tuple[int, str]:
        return self.run(["bash", "--noprofile", "--norc", "-c", script])


@contextlib.contextmanager
def directories() -> Iterator[Path]:
    """A session's, and the user's home; not in /tmp, which a jail has for itself."""
    path = Path(tempfile.mkdtemp(prefix="sc-", dir="/var/tmp"))
    for name in ("outside", "spill", "private", "home/.ssh"):
        (path / name).mkdir(parents=True)
    for name in ("outside/file", "outside/text", "home/.ssh/id", "home/.netrc"):
        (path / name).write_text("text")
    (path / "home/.gitconfig").write_text("[user]\nname = a\nemail = a@b\n")
    subprocess.run(["git", "init", "-q", path / "root"], check=True)
    (path / "root/.git/hooks").mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(path / "home"))
        yield path
    shutil.rmtree(path)


@contextlib.contextmanager
def confine(level: Level, base: Path, root: Path, *, network: bool = False) -> Iterator[Confined]:
    """Skips the test where the system does not have the level."""
    private = [base / "private", base / "spill"]
    try:
        obtained = obtain(SandboxWish(level, require=True, network=network), [root], private)
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    with contextlib.closing(Launcher(obtained, [root], base / "spill", private)) as launcher:
        yield Confined(level, launcher, base, root, obtained.detail)


def at(*levels: Level) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("confined", levels, indirect=True, ids=str)
