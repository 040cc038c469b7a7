"""`initialize`: what this agent can do, and what of it a client said that we use. Pure.

Left out on purpose: `session/delete`. A worker cannot destroy its session, only its daemon can,
and a capability that changes nothing in `session/list` would be a lie.
"""

from __future__ import annotations

from typing import Any, cast

from sidecar.protocol import VERSION

Json = dict[str, Any]

PROTOCOL_VERSION = 1
"""The only one we speak: whoever asks for another is offered it (acp.md §2.6)."""

INITIALIZED: Json = {
    "protocolVersion": PROTOCOL_VERSION,
    "agentInfo": {"name": "sidecar", "title": "Sidecar", "version": VERSION},
    "agentCapabilities": {
        "loadSession": True,
        "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
        "mcpCapabilities": {"http": False, "sse": False},
        "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
    },
    "authMethods": [],
}


def takes_notices(client_capabilities: Json) -> bool:
    """`{}` is yes, absent and null are no."""
    session = client_capabilities.get("session")
    given = cast("Json", session) if isinstance(session, dict) else {}
    return given.get("notices") is not None
