"""The sandbox of a session's commands, as its settings ask for it and this system has it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from session_worker.core import SessionCore
from session_worker.sandbox import Launcher, Level, SandboxUnavailable, SandboxWish, obtain

log = logging.getLogger(__name__)


def sandboxed(core: SessionCore) -> Launcher:
    """What starts its commands. Reports what was obtained, and tells people if it is less than was
    asked for. Raises SystemExit where the settings require more: then there is no session."""
    spec = core.spec
    wish = SandboxWish(
        Level(spec.sandbox["level"]), spec.sandbox["require"], spec.sandbox["network"]
    )
    roots = [Path(os.path.realpath(p)) for p in (spec.cwd, *spec.permissions.additional_dirs)]
    private = list(spec.private.values())
    try:
        obtained = obtain(wish, roots, private)
        launcher = Launcher(obtained, roots, spec.places["spill"], private)
    except (SandboxUnavailable, OSError) as error:
        log.error("%s; see [sandbox] in config.toml", error)
        raise SystemExit(1) from error
    core.report(sandbox={"level": obtained.level, **obtained.detail})
    if obtained.level != wish.level:
        reason = obtained.detail["missing"][wish.level]
        core.notice("warning", f"Commands run in sandbox '{obtained.level}' only: {reason}")
    return launcher
