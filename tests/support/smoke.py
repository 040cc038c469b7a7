"""Run by test_install.py with every Python at hand: what is installed there imports and works."""

import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

PACKAGES = ("sidecar", "session_worker", "client")
BIN = Path(sys.executable).parent


def import_everything() -> int:
    """The number of modules."""
    # Ours must be clean; what a dependency deprecates on a newer Python is not ours to mend.
    for package in PACKAGES:
        warnings.filterwarnings("error", category=DeprecationWarning, module=rf"{package}(\.|$)")
    modules = 0
    for package in map(importlib.import_module, PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
                modules += 1
    return modules


def run_a_session() -> None:
    """A prompt through a daemon of our own, by the installed command line."""
    with tempfile.TemporaryDirectory(prefix="sc-", dir="/tmp") as home:
        work = Path(home) / "work"
        work.mkdir()
        env = {**os.environ, "SIDECAR_HOME": home}

        def sidecarctl(*args: str) -> str:
            command = [sys.executable, "-m", "client.cli", *args]
            return subprocess.run(
                command, env=env, check=True, capture_output=True, text=True, timeout=120
            ).stdout

        try:
            said = sidecarctl("run", "--cwd", str(work), "run `echo smoke-$((40+2))`")
            assert "smoke-42" in said, said
        finally:
            sidecarctl("daemon", "stop", "--stop-sessions")


if __name__ == "__main__":
    modules = import_everything()
    run_a_session()
    print(
        f"{modules} modules of {PACKAGES} import, and a session runs, on {sys.version.split()[0]}"
    )
