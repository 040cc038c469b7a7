"""MCP servers as `.mcp.json` and `session.create` configure them (tools-and-ux.md §6). Pure.

Every server is judged alone: what is wrong with one never keeps the others from being used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

STARTUP_S = 15.0
"""Connecting and listing, unless configured: a Python server imports for a second, `npx` looks at
its cache for five."""
CALL_S = 120.0
"""A call without a word of progress, unless configured; as long as a command has."""
CALL_MAX_S = 600.0
"""A call with all its progress, and the longest time that may be configured."""
NAME_CHARS = 64
"""Of a server's name: it is part of every name of its tools."""

Source = Literal["session", "user", "project"]
"""Who configured a server: the one who made the session, the user's file, the project's file."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_NAME = re.compile(rf"[^\x00-\x20\x7f/]{{1,{NAME_CHARS}}}")

Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]
Variable = Annotated[str, Field(pattern=r"^[^\x00=]+$")]
Seconds = Annotated[float, Field(gt=0, le=CALL_MAX_S)]


class Settings(BaseModel):
    """One server's. Closed: a misspelt `exclude` must not let through what it was to keep out.

    What may hold a secret is not in its repr.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    type: Literal["stdio", "http", "streamable-http"] | None = None
    command: Annotated[Text, Field(min_length=1)] | None = Field(default=None, repr=False)
    args: list[Text] = Field(default=[], repr=False)
    env: dict[Variable, Text] = Field(default={}, repr=False)
    cwd: Text | None = None
    url: Annotated[Text, Field(min_length=1)] | None = Field(default=None, repr=False)
    headers: dict[Variable, Text] = Field(default={}, repr=False)
    startup_timeout_s: Seconds = STARTUP_S
    timeout_s: Seconds = CALL_S
    enabled: bool = True
    required: bool = False
    include: list[str] | None = None
    exclude: list[str] = []

    @property
    def is_http(self) -> bool:
        return self.url is not None

    @model_validator(mode="after")
    def _one_transport(self) -> Self:
        wanted, others = ("command", {"url", "headers"})
        if self.type not in (None, "stdio") or (self.type is None and self.url is not None):
            wanted, others = ("url", {"command", "args", "env", "cwd"})
        if getattr(self, wanted) is None:
            raise ValueError(f"{wanted} is missing")
        if wrong := sorted(others & self.model_fields_set):
            raise ValueError(f"{wrong[0]} does not go with {wanted}")
        return self


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
    if not _NAME.fullmatch(name):
        raise ValueError(f"mcpServers: {name[:NAME_CHARS]!r} cannot be the name of a server")
    try:
        settings = Settings.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, ("mcpServers", name, *first["loc"])))
        raise ValueError(f"{field}: {first['msg'].removeprefix('Value error, ')}") from None
    canonical = json.dumps(raw, sort_keys=True, separators=(",", ":"))
    return Entry(name, source, settings, hashlib.sha256(canonical.encode()).hexdigest())


def expand(entry: Entry, environ: Mapping[str, str]) -> Settings:
    """Its settings with every `${VAR}` and `${VAR:-x}` replaced; as in a shell, x also stands for
    an empty variable. Raises ValueError that names server, field and variable."""
    name, settings = entry.name, entry.settings

    def of(field: str) -> Callable[[str], str]:
        return lambda text: _expanded(text, environ, f"mcpServers.{name}.{field}")

    expanded = settings.model_copy(
        update={
            "command": settings.command and of("command")(settings.command),
            "args": list(map(of("args"), settings.args)),
            "env": {key: of(f"env.{key}")(text) for key, text in settings.env.items()},
            "url": settings.url and of("url")(settings.url),
            "headers": {key: of(f"headers.{key}")(text) for key, text in settings.headers.items()},
        }
    )
    if expanded.is_http and not re.match("https?://", expanded.url or ""):
        raise ValueError(f"mcpServers.{name}.url: it begins neither with https:// nor with http://")
    return expanded


def _expanded(text: str, environ: Mapping[str, str], where: str) -> str:
    def value(match: re.Match[str]) -> str:
        variable, otherwise = match.groups()
        found = environ.get(variable)
        if otherwise is not None:
            return found or otherwise
        if found is None:
            raise ValueError(f"{where}: {variable} is not set")
        return found

    return _VARIABLE.sub(value, text)
