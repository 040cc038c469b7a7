"""The MCP servers that a session is to have: the project's, and those it was created with."""

from __future__ import annotations

import logging

from session_worker.core import SessionCore
from session_worker.mcp_servers.approval import Approvals, project_servers
from session_worker.mcp_servers.configuration import parse_servers
from session_worker.mcp_servers.server import Place as ServerPlace
from session_worker.mcp_servers.servers import Servers
from session_worker.project.place import Place
from session_worker.tools.toolbox import BY_NAME
from sidecar.protocol.trust import TrustStore

log = logging.getLogger(__name__)


def find_servers(core: SessionCore, place: Place) -> Servers | None:
    """None if there are none. Starts nothing; tells people of entries that are not used."""
    spec = core.spec
    state = spec.private["state"]
    trusted = TrustStore(state).is_trusted(spec.cwd)
    entries, problems = project_servers(place.root, trusted=trusted)
    if spec.mcp_servers:
        own, more = parse_servers({"mcpServers": spec.mcp_servers}, "session")
        entries, problems = {**entries, **own}, [*problems, *more]
    for problem in problems:
        core.notice("warning", problem)
    if not entries:
        return None

    def on_change(added: list[str], removed: list[str]) -> None:
        core.tools_version += 1 if added or removed else 0
        for names, what in ((added, "are there"), (removed, "are gone")):
            if names:
                core.notice("info", f"Tools of MCP servers {what}: {', '.join(names)}")

    where = ServerPlace(place.cwd, spec.tool_env, state, Approvals(state, place.root))
    return Servers(entries.values(), where, BY_NAME.keys(), on_change)
