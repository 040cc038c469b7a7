"""`record.json`: what a later daemon must know of a session. Written before anything is started.

It holds the specification without `env`, and who the shim is; secrets are never in it.
"""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sidecar.identity import Identity
from sidecar.protocol.files import read_json, write_json
from sidecar.protocol.paths import SessionPlaces, ensure_private_dir

log = logging.getLogger(__name__)

VERSION = 1


@dataclass
class Record:
    """`spec` is `session.create`'s params with their defaults, without `env`. `wanted` is `up` or
    `down`: a stop that had begun is finished by the next daemon. `shim` is null until spawned;
    `cgroup` is null where the session has no control group of its own. `made_by` is the worker of
    its parent that asked for it: a subagent does not outlive that."""

    session_id: str
    name: str
    spec: dict[str, Any]
    created_at: str
    wanted: str = "up"
    shim: Identity | None = None
    cgroup: str | None = None
    made_by: Identity | None = None

    @property
    def parent(self) -> str | None:
        """The session it belongs to."""
        return self.spec.get("parent")

    def save(self, places: SessionPlaces) -> None:
        write_json(places.record, {"v": VERSION, **asdict(self)})

    @classmethod
    def load(cls, places: SessionPlaces) -> Record:
        """Raises OSError, ValueError, KeyError or TypeError for what is not a record of ours."""
        raw = read_json(places.record)
        if raw["v"] != VERSION or raw["session_id"] != places.session_id:
            raise ValueError("a record of another version or session")
        shim, made_by = (raw.get(who) and Identity(**raw[who]) for who in ("shim", "made_by"))
        return cls(
            raw["session_id"],
            raw["name"],
            raw["spec"],
            raw["created_at"],
            raw["wanted"],
            shim,
            raw.get("cgroup"),
            made_by,
        )


def set_aside(path: Path, where: Path, error: Exception) -> None:
    """Keep what is no record of ours for a person to look at, out of everybody's way."""
    ensure_private_dir(where)
    target = where / f"{path.name}.{time.time_ns()}"
    log.warning("%s holds no record of ours (%r); moved to %s", path, error, target)
    path.rename(target)
