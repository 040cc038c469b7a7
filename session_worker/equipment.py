"""What a session works with: its tools, the gate before them, the hooks around them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from session_worker.core import SessionCore
from session_worker.gate import Gate
from session_worker.hooks import Hooks
from session_worker.mcp_servers.approval import FILE as MCP_FILE
from session_worker.memory import Memory
from session_worker.permissions.policy import Policy
from session_worker.project.nested import NestedInstructions
from session_worker.project.place import Place
from session_worker.project.policy import FILES, project_policy
from session_worker.project.skills import Skill
from session_worker.subagents.delegate import Subagents
from session_worker.tools.spec import Launch, Shell, ToolContext
from session_worker.tools.toolbox import BY_NAME, Toolbox
from session_worker.transcript import Record
from sidecar.protocol import bounds
from sidecar.protocol.policy_file import Rules
from sidecar.protocol.remembered import Remembered
from sidecar.protocol.trust import TrustStore


@dataclass(frozen=True)
class Equipment:
    tools: Toolbox
    gate: Gate
    hooks: Hooks


def equip(
    core: SessionCore,
    place: Place,
    skills: Mapping[str, Skill],
    launch: Launch,
    records: Sequence[Record],
    cwd: Path | None,
    tasks: asyncio.TaskGroup,
) -> Equipment:
    """As the settings, the project and the answers so far have it. Commands go on in `cwd`. People
    are told of what is wrong with any of it. `tasks` is for what outlasts a call."""
    spec = core.spec
    state = spec.private["state"]
    trusted = TrustStore(state).is_trusted(spec.cwd)
    project = project_policy(place.root, trusted=trusted)
    hooks = Hooks(
        [*spec.permissions.hooks, *project.hooks], spec.cwd, spec.tool_env, spec.session_id
    )
    for problem in (*project.notices, *hooks.problems()):
        core.notice("warning", problem)
    spill = _canonical(spec.places["spill"])
    extra = tuple(map(_canonical, spec.permissions.additional_dirs))
    has_network = spec.sandbox["level"] == "none" or spec.sandbox["network"]
    context = ToolContext(
        call_id="",
        root=place.cwd,
        shell=Shell(cwd or place.cwd),
        env=spec.tool_env,
        spill_dir=spill,
        emit_output=lambda _: None,
        extra_roots=(*extra, spill),  # what was too long for the model must be readable
        skills=skills,
        launch=launch,
        private_hosts=spec.private_hosts if has_network else None,
        client_terminal=_client_terminal(core),
    )
    system, user = spec.permissions.layers
    policy = Policy(
        mode=spec.mode,
        layers=(system, Rules("session.create", deny=spec.deny), *project.layers, user),
        roots=context.roots,
        home=place.home or Path("/nonexistent"),
        # nobody writes unasked to our sockets, our files, and the settings that govern us
        protected=(*map(_canonical, spec.private.values()), *_settings(place.root)),
        trusted=trusted,
    )
    memory = Memory(core.transcript, records, Remembered(state), place.root)
    specs = dict(BY_NAME)
    if spec.parent is not None:
        del specs["task"]  # a subagent has none of its own
    gate = Gate(core, specs, policy, memory, hooks, context)
    context = replace(
        context,
        hidden=lru_cache(bounds.HIDDEN_PATHS_CACHED)(gate.hides),
        delegate=Subagents(core, gate, memory, tasks).delegate,
    )
    nested = NestedInstructions(place, extra)
    return Equipment(Toolbox(core, gate, hooks, nested, context, specs), gate, hooks)


def _client_terminal(core: SessionCore) -> bool:
    """Whether commands may run in a client's terminal, where no sandbox would hold them."""
    level = core.spec.sandbox["level"]
    if core.spec.client_terminal and level != "none":
        core.notice("warning", f"No command runs in a client's terminal: it is outside of {level}.")
        return False
    return core.spec.client_terminal


def _settings(root: Path) -> Iterator[Path]:
    """Of the project, as they are called and where they are: a repository may have links there."""
    yield from (root / ".sidecar", root / MCP_FILE)
    yield from (_canonical(root / each) for each in (".sidecar", *FILES.values(), MCP_FILE))


def _canonical(path: Path) -> Path:
    return Path(os.path.realpath(path))
