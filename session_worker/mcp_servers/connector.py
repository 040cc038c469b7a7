"""The API's own MCP connector: servers that the model's provider connects to, and not we. Pure.

The legacy option of the first source document (anthropic.md §2.4): such a server's tools are not
listed, asked about or run here, and its token goes to the provider with every request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sidecar.protocol.mcp import Settings

BETA = "mcp-client-2025-11-20"


@dataclass(frozen=True)
class Connector:
    """What requests carry for it: `servers` beside the messages, `toolsets` among the tools.
    `secrets` must not be shown to anybody."""

    servers: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]], repr=False)
    toolsets: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    secrets: list[str] = field(default_factory=list[str], repr=False)

    @property
    def betas(self) -> list[str]:
        return [BETA] if self.servers else []


def connector(servers: Mapping[str, Settings]) -> Connector:
    """Of these servers, whose settings are expanded. Always the same order: the same bytes."""
    named = sorted(servers.items())
    secrets = [settings.authorization_token for _, settings in named]
    return Connector(
        [_server(name, settings) for name, settings in named],
        [_toolset(name, settings) for name, settings in named],
        [secret for secret in secrets if secret],
    )


def _server(name: str, settings: Settings) -> dict[str, Any]:
    server = {"type": "url", "url": settings.url, "name": name}
    if settings.authorization_token:
        server["authorization_token"] = settings.authorization_token
    return server


def _toolset(name: str, settings: Settings) -> dict[str, Any]:
    toolset: dict[str, Any] = {"type": "mcp_toolset", "mcp_server_name": name}
    configs = {tool: {"enabled": True} for tool in settings.include or ()}
    configs |= {tool: {"enabled": False} for tool in settings.exclude}
    if settings.include is not None:
        toolset["default_config"] = {"enabled": False}
    return toolset | ({"configs": configs} if configs else {})
