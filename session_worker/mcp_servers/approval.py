"""Which servers of a project may be started: `mcp-approved.json` in the state directory.

A repository must not have programs started (peers.md §D 10): its `.mcp.json` counts in a trusted
project only, and there each new or changed server once somebody has approved it as it is. Never in
the project itself, where whoever writes files could approve.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from session_worker.mcp_servers.configuration import Entry, parse_servers
from session_worker.project.reading import Refused, read_text
from sidecar.protocol import mcp_bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.files import exclusive, read_json, write_json

VERSION = 1
FILE = Path(".mcp.json")


def project_servers(root: Path, *, trusted: bool) -> tuple[dict[str, Entry], list[str]]:
    """What the `.mcp.json` of the project at `root` configures, and notices for people."""
    path = root / FILE
    try:
        text = read_text(path, root, mcp_bounds.MCP_FILE_BYTES + 1)
        if text is None:
            return {}, []
        if len(text) > mcp_bounds.MCP_FILE_BYTES:
            raise Refused(f"it is longer than {mcp_bounds.MCP_FILE_BYTES} bytes")
        raw = json.loads(text)
        if not isinstance(raw, dict):
            raise Refused("it holds no JSON object")
        entries, problems = parse_servers(cast("dict[str, Any]", raw), "project")
    except (Refused, ValueError, RecursionError) as error:
        return {}, [f"{path}: {error}"]
    notices = [f"{path}: {problem}" for problem in problems]
    if entries and not trusted:
        names = ", ".join(entries)
        notices.append(
            f"{path} has MCP servers ({names}): they count once you trust the project "
            f"(sidecarctl trust {root})."
        )
        entries = {}
    return entries, notices


class Approvals:
    """Those of one project. Any number of processes may use the store at once."""

    def __init__(self, state: Path, root: Path) -> None:
        """`root` is the project's, canonical."""
        self._file = state / "mcp-approved.json"
        self._root = str(root)

    def is_approved(self, entry: Entry) -> bool:
        """Whether it may be started; what the user configured may. No if the store is broken."""
        if entry.source != "project":
            return True
        try:
            return self._projects().get(self._root, {}).get(entry.name) == entry.fingerprint
        except SidecarError:
            return False

    def approve(self, entry: Entry) -> None:
        """As it is now. Raises `SidecarError`, OSError."""
        with exclusive(self._file):
            projects = {root: dict(servers) for root, servers in self._projects().items()}
            projects.setdefault(self._root, {})[entry.name] = entry.fingerprint
            write_json(self._file, {"v": VERSION, "projects": projects})

    def _projects(self) -> Mapping[str, Mapping[str, str]]:
        """The approved fingerprint of each server, by root and name. Raises `SidecarError`."""
        try:
            return _checked(read_json(self._file))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise SidecarError(
                "forbidden",
                f"{self._file} is not usable, so no server of a project is approved: {error}",
                f"look at it, and remove it: rm {self._file}",
            ) from error


def shown(entry: Entry) -> dict[str, Any]:
    """What a person approves: everything but values of variables and headers."""
    settings = entry.settings
    return {
        "fingerprint": entry.fingerprint,
        "command": settings.command,
        "args": settings.args,
        "cwd": settings.cwd,
        "url": settings.url,
    }


def _checked(stored: dict[str, Any]) -> dict[str, dict[str, str]]:
    projects = stored.get("projects")
    if stored.get("v") != VERSION or not isinstance(projects, dict):
        raise ValueError("of another version, or damaged")
    for servers in cast("dict[str, Any]", projects).values():
        if not isinstance(servers, dict) or not all(
            isinstance(each, str) for each in cast("dict[str, Any]", servers).values()
        ):
            raise ValueError("damaged")
    return cast("dict[str, dict[str, str]]", projects)
