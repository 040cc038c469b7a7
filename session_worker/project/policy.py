"""What a project says of permissions: `.sidecar/config.toml` and `.sidecar/config.local.toml`.

It may forbid and question from the start. What it would allow, and the hooks it would run, count
only once somebody trusts the project: a repository must not approve itself (tools-and-ux.md §3.2).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from session_worker.project.reading import Refused, read_text
from session_worker.tools.truncate import size_text
from sidecar.protocol.bounds import KIB
from sidecar.protocol.hooks import Hook
from sidecar.protocol.policy_file import Rules, parse_policy
from sidecar.protocol.rules import Rule

FILE_BYTES = 64 * KIB
"""Of one such file: hundreds of rules."""
FILES = {
    "project-local": Path(".sidecar/config.local.toml"),
    "project": Path(".sidecar/config.toml"),
}
"""By the name of their layer, the stronger first."""


@dataclass(frozen=True)
class ProjectPolicy:
    """`notices` are for people: what is wrong with a file, and what trust would bring."""

    layers: tuple[Rules, ...] = ()
    hooks: tuple[Hook, ...] = ()
    notices: tuple[str, ...] = ()


def project_policy(root: Path, *, trusted: bool) -> ProjectPolicy:
    """Of the project at `root`. A file that makes no sense forbids nothing that it was meant to, so
    then everything is asked."""
    layers: list[Rules] = []
    hooks: list[Hook] = []
    notices: list[str] = []
    for source, file in FILES.items():
        try:
            text = read_text(root / file, root, FILE_BYTES)
            if text is None:
                continue
            if (root / file).stat().st_size > FILE_BYTES:
                raise ValueError(f"it is longer than {size_text(FILE_BYTES)}")
            raw = tomllib.loads(text)
            if unknown := sorted(set(raw) - {"permissions", "hooks"}):
                raise ValueError(f"a project cannot set {unknown[0]!r}")
            rules, wanted = parse_policy(raw, source, text)
        except (Refused, ValueError, OSError, RecursionError) as error:
            layers.append(Rules(f"{source}, unreadable", ask=(Rule("*"),)))
            notices.append(f"{root / file}: {error}. Until it is corrected, everything is asked.")
            continue
        if not trusted and (rules.allow or wanted):
            notices.append(
                f"{root / file} allows things or has hooks: they count once you trust the project "
                f"(sidecarctl trust {root})."
            )
            rules, wanted = replace(rules, allow=()), ()
        layers.append(rules)
        hooks += wanted
    return ProjectPolicy(tuple(layers), tuple(hooks), tuple(notices))
