"""MCP servers as `.mcp.json` and `session.create` configure them (tools-and-ux.md §6). Pure.

Every server is judged alone: what is wrong with one never keeps the others from being used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from sidecar.protocol.mcp import BadServer, Settings, parse_settings

Source = Literal["session", "user", "project"]
"""Who configured a server: the one who made the session, the user's file, the project's file."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_ADDRESS = re.compile(r"https?://[^\s/?#]+(?:[/?#]\S*)?")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER = re.compile(r"[\t\x20-\x7e]*")
"""What the library would not send; its own complaint would quote the value."""


@dataclass(frozen=True)
class Entry:
    """`settings` as they were written, variables and all; `fingerprint` changes with any of it."""

    name: str
    source: Source
    settings: Settings
    fingerprint: str

    @property
    def trusted(self) -> bool:
        """Whether what its server says of its tools may be believed: a project's may not."""
        return self.source != "project"


def parse_servers(raw: Mapping[str, Any], source: Source) -> tuple[dict[str, Entry], list[str]]:
    """The servers of `{"mcpServers": {name: {…}}}`, and what is wrong with the others.

    Raises ValueError if it has not that form at all.
    """
    servers = raw.get("mcpServers")
    if not isinstance(servers, dict):
        raise ValueError("mcpServers is not an object of servers")
    entries: dict[str, Entry] = {}
    problems: list[str] = []
    for name, each in cast("dict[str, Any]", servers).items():
        try:
            entries[name] = parse_server(name, each, source)
        except ValueError as error:
            problems.append(str(error))
    return entries, problems


def parse_server(name: str, raw: object, source: Source) -> Entry:
    """One server. Raises ValueError that names server and field, and quotes no value."""
    try:
        settings = parse_settings(name, raw)
    except BadServer as error:
        raise ValueError(f"mcpServers.{error}") from None
    canonical = json.dumps(raw, sort_keys=True, separators=(",", ":"))
    return Entry(name, source, settings, hashlib.sha256(canonical.encode()).hexdigest())


def expand(entry: Entry, environ: Mapping[str, str]) -> Settings:
    """Its settings with every `${VAR}` and `${VAR:-x}` replaced; as in a shell, x also stands for
    an empty variable. Raises ValueError that names server, field and variable."""
    name, settings = entry.name, entry.settings

    def of(field: str) -> Callable[[str], str]:
        return lambda text: _expanded(text, environ, f"mcpServers.{name}.{field}")

    expanded = replace(
        settings,
        command=settings.command and of("command")(settings.command),
        args=[of(f"args.{number}")(text) for number, text in enumerate(settings.args)],
        env={key: of(f"env.{key}")(text) for key, text in settings.env.items()},
        url=settings.url and of("url")(settings.url),
        headers={key: of(f"headers.{key}")(text) for key, text in settings.headers.items()},
        authorization_token=settings.authorization_token
        and of("authorization_token")(settings.authorization_token),
    )
    if expanded.url is not None and not _ADDRESS.fullmatch(expanded.url):
        raise ValueError(f"mcpServers.{name}.url: not an address such as https://example.org/mcp")
    if expanded.connector and not (expanded.url or "").startswith("https://"):
        raise ValueError(f"mcpServers.{name}.url: the API's connector wants https://")
    for key, text in expanded.headers.items():
        if not (_HEADER_NAME.fullmatch(key) and _HEADER.fullmatch(text)):
            raise ValueError(
                f"mcpServers.{name}.headers.{key}: no header; perhaps with a line break at its end"
            )
    return expanded


def _expanded(text: str, environ: Mapping[str, str], where: str) -> str:
    def value(match: re.Match[str]) -> str:
        variable, otherwise = match.groups()
        found = environ.get(variable)
        if otherwise is not None:
            return found or otherwise
        if found is None:
            raise ValueError(
                f"{where}: {variable} is not set in the session's env; "
                f"${{{variable}:-}} would stand for nothing then"
            )
        return found

    return _VARIABLE.sub(value, text)
