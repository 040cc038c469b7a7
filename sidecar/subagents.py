"""Sessions that belong to another: who may ask for one, what it may at most, and when it ends.

The verdicts of the supervisor and of the control plane's handlers. Nothing here acts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.modes import stricter
from sidecar.session import Session

Params = dict[str, Any]


def asked_by_worker(
    method: str, params: Params, own: str, find: Callable[[str], Session]
) -> Params:
    """`params` as the worker of session `own` may ask for `method`: subagents of its own, and
    nothing else. Raises `SidecarError` (`forbidden`, and what `find` raises)."""
    match method:
        case "session.create" if params.get("parent", own) == own:
            return {**params, "parent": own}
        case "session.status" | "session.destroy":
            if find(params["session_id"]).record.parent == own:
                return params
        case _:
            pass
    raise SidecarError(
        "forbidden",
        "a session's worker may make, see and end subagents of its own, nothing else",
        "run it in a terminal of your own",
    )


def within(params: Params, parent: Session) -> Params:
    """`params` of a create, at most what `parent` may itself now."""
    given, most = params["limits"], parent.record.spec["limits"]
    mode = parent.info()["mode"]
    return {
        **params,
        "parent": parent.record.session_id,
        "mode": stricter(params.get("mode", mode), mode),
        "limits": {
            **given,
            **{name: min(given.get(name, most[name]), most[name]) for name in most},
        },
    }


def require_room(parent: Session, children: Sequence[Session]) -> None:
    """Raises `SidecarError` if `parent` may not have one more."""
    if parent.record.parent is not None:
        raise SidecarError(
            "forbidden", "a subagent may not have subagents", "name the session above it"
        )
    if not parent.live or parent.record.wanted == "down":
        raise SidecarError(
            "invalid_params",
            f"the parent {parent.record.name} has ended",
            "sidecarctl session resume brings it up again",
            param="parent",
        )
    if sum(child.live for child in children) >= bounds.SUBAGENTS_MAX:
        raise SidecarError(
            "limit_reached",
            f"{parent.record.name} has {bounds.SUBAGENTS_MAX} subagents, which is all it may",
            "wait until one of them has ended",
            limit="subagents",
        )


def is_orphan(child: Session, parent: Session | None) -> bool:
    """Whether `child` is a subagent that lives on although what it was made for is gone: its
    parent, or the worker of it that asked. Until a parent is heard of it counts as what it was."""
    if child.record.parent is None or not child.live or child.record.wanted == "down":
        return False
    if parent is None or not parent.live:
        return True
    heard, made_by = parent.word["shim_pid"] is not None, child.record.made_by
    return heard and made_by is not None and parent.word["pid"] != made_by.pid
