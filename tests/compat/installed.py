"""What `make compat` has put into `build/compat`: clients and servers that nobody here wrote."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BUILD = Path(__file__).parents[2] / "build/compat"
PYTHON = "python"
NODE = "node"


def installed(part: str, path: str) -> Path:
    """That file of a part. If it is not there the test is skipped, and says why; with
    SIDECAR_COMPAT_REQUIRED=1, as in CI, it fails."""
    found = _BUILD / part / path
    if found.exists():
        return found
    log = _BUILD / f"{part}.log"
    said = log.read_text().strip().splitlines() if log.exists() else []
    reason = f"{part} has no {path}: {said[-1] if said else 'run `make compat`'}"
    if os.environ.get("SIDECAR_COMPAT_REQUIRED") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
