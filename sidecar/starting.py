"""What a new shim is given: sockets, log, link, and over the link its specification."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sidecar import environment, faults
from sidecar.config import Config
from sidecar.control_socket import listen
from sidecar.forker import Forkers, ForkRefused
from sidecar.identity import identify
from sidecar.protocol import bounds
from sidecar.protocol.paths import Places
from sidecar.session import Session
from sidecar.shim_link import ShimLink

log = logging.getLogger(__name__)


async def spawn(session: Session, forkers: Forkers) -> ShimLink:
    """A new shim, its identity on disk before it may act. Raises OSError, `SidecarError`."""
    try:
        return await _spawn(session, forkers.by_fork)
    except ForkRefused as error:
        log.info("session %s starts by exec: %s", session.record.session_id, error)
        # with descriptors of its own: a shim that was forked after all finds its link closed
        return await _spawn(session, forkers.by_exec)


async def _spawn(session: Session, make_shim: Callable[[list[int]], Awaitable[int]]) -> ShimLink:
    """Sockets, log and link for a new shim."""
    places, record = session.places, session.record
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ExitStack() as passed, ExitStack() as on_failure:
        on_failure.callback(ours.close)
        passed.enter_context(theirs)
        endpoint = passed.enter_context(listen(places.endpoint, bounds.ENDPOINT_BACKLOG))
        control = passed.enter_context(listen(places.control, bounds.SHIM_BACKLOG))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        worker_log = os.open(places.worker_log, flags, 0o600)
        passed.callback(os.close, worker_log)
        faults.reach("sockets_bound")
        pid = await make_shim([endpoint.fileno(), control.fileno(), theirs.fileno(), worker_log])
        on_failure.pop_all()
    faults.reach("shim_forked")
    record.shim = identify(pid)
    record.save(places)
    faults.reach("identity_written")
    return await ShimLink.over(ours)


def specification(
    session: Session, env: dict[str, str], config: Config, all_places: Places
) -> dict[str, Any]:
    """What the worker needs, secrets included; it exists in memory and on the link only."""
    record, spec, places = session.record, session.record.spec, session.places
    permissions = config.permissions
    provider_env, tool_env = environment.split(env, os.environ, session.record.session_id)
    return {
        "session_id": session.record.session_id,
        "cwd": spec["cwd"],
        "model": spec.get("model"),
        "system": spec.get("system"),
        "max_turns": spec["max_turns"],
        "max_tokens": spec.get("max_tokens", bounds.MAX_TOKENS_DEFAULT),
        "mode": spec["mode"],
        "ring_bytes": spec["ring_bytes"],
        "limits": spec["limits"],
        "cgroup": session.record.cgroup,
        "tcp": {"origins": config.tcp.origins} if spec.get("tcp") else None,
        "idle_timeout_s": spec["idle_timeout_s"],
        "incarnation": session.word["incarnation"],
        "places": {
            name: str(getattr(places, name))
            for name in (
                "endpoint",
                "control",
                "model",
                "transcript",
                "ring",
                "spill",
                "worker_log",
                "exit",
            )
        },
        "provider_env": provider_env,
        "tool_env": tool_env,
        "prices": config.prices,
        "permissions": {
            "headless": permissions.headless,
            "headless_after_s": permissions.headless_after_s,
            "additional_dirs": permissions.additional_dirs,
            "layers": [rules.to_wire() for rules in permissions.layers],
            "hooks": [asdict(hook) for hook in permissions.hooks],
        },
        "deny": spec.get("deny", []),
        "parent": record.parent
        and {
            "session_id": record.parent,
            "mode": spec["mode"],
            "worker": record.made_by and asdict(record.made_by),
        },
        "control_socket": str(all_places.control_socket),
        "mcp_servers": spec["mcp_servers"],
        "ptc_profile": spec.get("ptc_profile"),
        "sandbox": asdict(config.sandbox),
        "web_fetch": asdict(config.web_fetch),
        "client_terminal": config.tools.client_terminal,
        "private": {
            "runtime": str(all_places.runtime),
            "state": str(all_places.state),
            "config": str(all_places.config),
        },
    }


def log_tail(path: Path) -> str:
    """The end of a log, for the error that a failed start is."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - bounds.LOG_TAIL_BYTES))
        return file.read().decode(errors="replace")
    return ""
