"""Where a session works: its directory, the project around it, and what is the user's own.

Made when a session takes its first prompt. Reads nothing but the environment and `.git`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from session_worker.project.reading import canonical
from session_worker.spec import SessionSpec
from sidecar.protocol.trust import project_root


@dataclass(frozen=True)
class Place:
    """All are canonical. `config` is where the user keeps what is for Sidecar alone; there may be
    no `home`."""

    cwd: Path
    root: Path
    config: Path
    home: Path | None

    @classmethod
    def of(cls, spec: SessionSpec) -> Place:
        home = spec.tool_env.get("HOME")
        return cls(
            canonical(spec.cwd),
            project_root(spec.cwd),
            canonical(spec.private["config"].parent),
            canonical(Path(home)) if home else None,
        )
