"""What people install is what is tested: the wheel, in empty environments, on every Python here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from sidecar.protocol import VERSION

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "tests" / "support" / "smoke.py"
PROBE = "import sys; print(sys.implementation.name, *sys.version_info[:3])"
RUN_S = 60
NEWEST_MINOR = 15
INSTALL_S = 300
"""An empty package cache has some 30 MB to fetch."""

pytestmark = pytest.mark.timeout(2 * INSTALL_S)


def run(*argv: str | Path, timeout: float = RUN_S) -> subprocess.CompletedProcess[str]:
    """Run a command as a user would: not in the checkout, and with nothing of this environment."""
    env = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SIDECAR", "VIRTUAL"))
    }
    return subprocess.run(argv, env=env, cwd="/", text=True, capture_output=True, timeout=timeout)


def candidates() -> Iterator[Path]:
    for directory in {*os.get_exec_path(), "/usr/bin"}:
        for path in Path(directory).glob("python3.*"):
            if re.fullmatch(r"python3\.\d+", path.name):
                yield path
    yield from Path.home().glob(".pyenv/versions/*/bin/python")


@cache
def other_pythons() -> dict[int, Path]:
    """The newest interpreter of each CPython 3.x that we support, the running version apart."""
    found: dict[tuple[int, ...], Path] = {}
    for path in {path.resolve() for path in candidates() if os.access(path, os.X_OK)}:
        name, *numbers = run(path, "-c", PROBE).stdout.split() or [""]
        if name == "cpython" and (version := tuple(map(int, numbers))) >= (3, 11):
            found[version] = path
    found.pop(sys.version_info[:3], None)
    return {version[1]: path for version, path in sorted(found.items())}


OTHERS = other_pythons()


def install(python: Path, wheel: Path, env: Path) -> subprocess.CompletedProcess[str]:
    made = run(python, "-m", "venv", env)
    if made.returncode:
        return made
    pip = [env / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-compile"]
    return run(*pip, wheel, timeout=INSTALL_S)


def site_packages(env: Path) -> Path:
    return next(env.glob("lib/python3.*/site-packages"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: a build leaves files in its tree, and finds those of the last one."""
    tree, out = (tmp_path_factory.mktemp(name) for name in ("tree", "wheel"))
    leave = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
    shutil.copytree(ROOT, tree, ignore=leave, dirs_exist_ok=True)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out]
    built = run(*pip, tree, timeout=INSTALL_S)
    assert built.returncode == 0, built.stderr
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def running(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment of the running Python; its other patch releases here borrow from it."""
    env = tmp_path_factory.mktemp("running")
    installed = install(Path(sys.executable), wheel, env)
    assert installed.returncode == 0, installed.stderr
    return env


@pytest.mark.soak
def test_the_commands_work_outside_the_checkout(running: Path) -> None:
    version = run(running / "bin" / "sidecard", "--version")
    assert (version.returncode, version.stdout) == (0, f"sidecar {VERSION}\n"), version.stderr
    usage = run(running / "bin" / "sidecarctl", "--help")
    assert usage.returncode == 0, usage.stderr
    assert "Usage" in usage.stdout


@pytest.mark.soak
@pytest.mark.parametrize("minor", range(11, NEWEST_MINOR + 1))
def test_every_other_python_here_runs_it(
    minor: int, wheel: Path, running: Path, tmp_path: Path
) -> None:
    if (python := other_pythons().get(minor)) is None:
        pytest.skip(f"there is no other CPython 3.{minor} here")
    borrows = minor == sys.version_info[1]
    bare = [python, "-m", "venv", "--without-pip", tmp_path]
    installed = run(*bare) if borrows else install(python, wheel, tmp_path)
    if installed.returncode:
        pytest.skip(f"cannot be installed there: {installed.stderr.strip()[-300:]}")
    if borrows:
        (site_packages(tmp_path) / "running.pth").write_text(f"{site_packages(running)}\n")
    smoke = run(tmp_path / "bin" / "python", SMOKE)
    assert smoke.returncode == 0, smoke.stderr
