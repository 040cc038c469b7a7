"""`initialize`: what this agent can do, and what of it a client said that we use. Pure.

Left out on purpose: `session/delete`. A worker cannot destroy its session, only its daemon can,
and a capability that changes nothing in `session/list` would be a lie.
"""

from __future__ import annotations

from typing import Any, cast

from session_worker.editor import READ, TERMINAL, WRITE
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
    return _member(client_capabilities, "session").get("notices") is not None


def offered(client_capabilities: Json) -> frozenset[str]:
    """The methods that the session's tools may ask of the client; `true` is yes."""
    fs = _member(client_capabilities, "fs")
    offers = {
        READ: fs.get("readTextFile"),
        WRITE: fs.get("writeTextFile"),
        TERMINAL: client_capabilities.get("terminal"),
    }
    return frozenset(method for method, given in offers.items() if given is True)


def _member(client_capabilities: Json, name: str) -> Json:
    given = client_capabilities.get(name)
    return cast("Json", given) if isinstance(given, dict) else {}
