"""How an MCP server is configured, in `session.create.mcp_servers` and in `.mcp.json`
(tools-and-ux.md §6).

The daemon checks it before there is a session; the worker uses it. Pure: nothing is expanded,
looked up or started here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Any, cast

from sidecar.protocol import mcp_bounds

TYPES = ("stdio", "http", "streamable-http")

_NAME = re.compile(rf"[^\x00-\x20\x7f/]{{1,{mcp_bounds.MCP_NAME_CHARS}}}")
_STDIO = frozenset({"command", "args", "env", "cwd"})
_HTTP = frozenset({"url", "headers"})
_OURS = frozenset({"headers", "startup_timeout_s", "timeout_s", "required"})
"""What the API's connector knows nothing of."""
_PATTERN = re.compile(r"[*?\[]")
_NULLABLE = frozenset({"type", "command", "cwd", "url", "include", "authorization_token"})


class BadServer(ValueError):
    """`where` names server and member, such as `gh.args.0`; no value is quoted, for it may be a
    secret."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where


@dataclass(frozen=True)
class Settings:
    """One server's, as they were written, `${VAR}` included. What may hold a secret is not in its
    repr."""

    type: str | None = None
    command: str | None = field(default=None, repr=False)
    args: list[str] = field(default_factory=list[str], repr=False)
    env: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    url: str | None = field(default=None, repr=False)
    headers: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    startup_timeout_s: float = mcp_bounds.MCP_STARTUP_S
    timeout_s: float = mcp_bounds.MCP_CALL_S
    enabled: bool = True
    required: bool = False
    include: list[str] | None = None
    exclude: list[str] = field(default_factory=list[str])
    connector: bool = False
    """The model's provider is to connect to it, and not we."""
    authorization_token: str | None = field(default=None, repr=False)

    @property
    def is_http(self) -> bool:
        return self.url is not None


def parse_settings(name: str, raw: object) -> Settings:
    """Raises `BadServer`. Closed: a misspelt `exclude` must not let through what it was to keep
    out."""
    if not _NAME.fullmatch(name):
        raise BadServer(
            repr(name[: mcp_bounds.MCP_NAME_CHARS]), "this cannot be the name of a server"
        )
    if not isinstance(raw, dict):
        raise BadServer(name, "not an object")
    given = cast("dict[str, object]", raw)
    for member, value in given.items():
        where = f"{name}.{member[: mcp_bounds.MCP_NAME_CHARS]}"
        if (check := _MEMBERS.get(member)) is None:
            raise BadServer(where, f"unknown; known are {', '.join(_MEMBERS)}")
        if value is not None or member not in _NULLABLE:
            check(where, value)
    settings = Settings(**cast("dict[str, Any]", given))
    _check_transport(name, settings, given.keys())
    return settings


def _check_transport(name: str, settings: Settings, given: Set[str]) -> None:
    over_http = settings.type in TYPES[1:] or (settings.type is None and settings.url is not None)
    wanted, others = ("url", _STDIO) if over_http else ("command", _HTTP)
    if getattr(settings, wanted) is None:
        raise BadServer(name, f"{wanted} is missing")
    if wrong := sorted(others & given):
        raise BadServer(f"{name}.{wrong[0]}", f"{wrong[0]} does not go with {wanted}")
    others = _OURS if settings.connector else frozenset({"authorization_token"})
    if settings.connector and not over_http:
        raise BadServer(f"{name}.connector", "only a server with a url can have it")
    if wrong := sorted(others & given):
        goes = "does not go with" if settings.connector else "goes only with"
        raise BadServer(f"{name}.{wrong[0]}", f"{wrong[0]} {goes} connector")
    if settings.connector and any(
        map(_PATTERN.search, [*(settings.include or ()), *settings.exclude])
    ):
        raise BadServer(name, "with connector, include and exclude are whole names, no patterns")


def _type(where: str, value: object) -> None:
    if value not in TYPES:
        raise BadServer(where, f"not one of {', '.join(TYPES)}")


def _text(where: str, value: object) -> None:
    if not isinstance(value, str) or "\0" in value:
        raise BadServer(where, "not a text, or one with a NUL in it")


def _some_text(where: str, value: object) -> None:
    _text(where, value)
    if not value:
        raise BadServer(where, "empty")


def _url(where: str, value: object) -> None:
    """With `${…}` at its start only the worker can tell."""
    _some_text(where, value)
    if not str(value).lower().startswith(("http://", "https://", "${")):
        raise BadServer(where, "not an http:// or https:// address")


def _texts(where: str, value: object) -> None:
    if not isinstance(value, list):
        raise BadServer(where, "not a list of texts")
    for number, text in enumerate(cast("list[object]", value)):
        _text(f"{where}.{number}", text)


def _named_texts(where: str, value: object) -> None:
    if not isinstance(value, dict):
        raise BadServer(where, "not an object of texts")
    for key, text in cast("dict[str, object]", value).items():
        inside = f"{where}.{key[: mcp_bounds.MCP_NAME_CHARS]}"
        if not key or "=" in key or "\0" in key:
            raise BadServer(inside, "this cannot be a name")
        _text(inside, text)


def _seconds(where: str, value: object) -> None:
    most = mcp_bounds.MCP_CALL_MAX_S
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise BadServer(where, f"not a number of seconds, more than 0 and at most {most:g}")


def _flag(where: str, value: object) -> None:
    if not isinstance(value, bool):
        raise BadServer(where, "neither true nor false")


_MEMBERS: dict[str, Callable[[str, object], None]] = {
    "type": _type,
    "command": _some_text,
    "args": _texts,
    "env": _named_texts,
    "cwd": _text,
    "url": _url,
    "headers": _named_texts,
    "startup_timeout_s": _seconds,
    "timeout_s": _seconds,
    "enabled": _flag,
    "required": _flag,
    "include": _texts,
    "exclude": _texts,
    "connector": _flag,
    "authorization_token": _some_text,
}
