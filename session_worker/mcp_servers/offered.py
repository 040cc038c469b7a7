"""The tools that a server offers, as they may be offered to the model. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from session_worker.mcp_servers import schemas
from session_worker.mcp_servers.results import MAX_CHARS_META
from session_worker.tools.truncate import clean
from sidecar.protocol import mcp_bounds
from sidecar.protocol.mcp import Settings


@dataclass(frozen=True)
class Offered:
    """`tool` is its own name; `says_read_only` is only what the server says."""

    tool: str
    title: str
    description: str
    schema: dict[str, Any]
    says_read_only: bool
    max_chars: object


def offered_tools(
    listed: Sequence[Mapping[str, Any]], settings: Settings
) -> tuple[dict[str, Offered], list[str]]:
    """The listed tools that the settings let through and the API would take, by name; and what is
    wrong with others."""
    offered: dict[str, Offered] = {}
    problems: list[str] = []
    for each in listed:
        name: str = each["name"]
        if not _wanted(name, settings) or name in offered:
            continue
        if len(offered) == mcp_bounds.MCP_TOOLS:
            problems.append(f"only the first {mcp_bounds.MCP_TOOLS} of its tools are used")
            break
        try:
            schema = schemas.usable(each["inputSchema"])
        except ValueError as error:
            problems.append(f"its tool {name[: mcp_bounds.MCP_TITLE_CHARS]!r} is not used: {error}")
            continue
        annotations: Mapping[str, Any] = each.get("annotations") or {}
        meta: Mapping[str, Any] = each.get("_meta") or {}
        title = each.get("title") or annotations.get("title") or name
        offered[name] = Offered(
            name,
            clean(title)[: mcp_bounds.MCP_TITLE_CHARS],
            clean(each.get("description") or title)[: mcp_bounds.MCP_DESCRIPTION_CHARS],
            schema,
            annotations.get("readOnlyHint") is True,
            meta.get(MAX_CHARS_META),
        )
    return offered, problems


def _wanted(name: str, settings: Settings) -> bool:
    included = settings.include is None or _matches(name, settings.include)
    return included and not _matches(name, settings.exclude)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
