"""What `sidecarctl acp` says of itself, before there is any session to ask. Pure."""

from __future__ import annotations

from client.acp.messages import Json
from sidecar.protocol import VERSION

PROTOCOL_VERSION = 1

AGENT: Json = {
    "protocolVersion": PROTOCOL_VERSION,
    "agentInfo": {"name": "sidecar", "title": "Sidecar", "version": VERSION},
    "authMethods": [],
    "agentCapabilities": {
        "loadSession": True,
        "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
        "mcpCapabilities": {"http": True, "sse": False},
        "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
    },
}
"""The answer to every `initialize`: of a version that we do not speak, ours is offered instead."""


def for_worker(asked: Json) -> Json:
    """The `initialize` params of a worker's connection, from the editor's: its capabilities decide
    what a worker may ask of it."""
    return {"clientCapabilities": {}, **asked, "protocolVersion": PROTOCOL_VERSION}
