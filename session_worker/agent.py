"""What the runs of a session share, and what one run has done so far."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from session_worker import updates
from session_worker.compaction import Attempts
from session_worker.conversation import Conversation
from session_worker.core import SessionCore
from session_worker.equipment import Equipment
from session_worker.gate import Gate
from session_worker.hooks import Hooks
from session_worker.loop_guard import LoopGuard
from session_worker.mcp_servers.connector import Connector
from session_worker.model import Model
from session_worker.models import ModelFacts
from session_worker.prefix import Prefix
from session_worker.prices import cost_usd
from session_worker.request import RequestWriter
from session_worker.result import AgentLoopResult, Usage
from session_worker.run import Run
from session_worker.spec import SessionSpec
from session_worker.tools.toolbox import Toolbox
from session_worker.turn import StopReason
from sidecar.protocol import events


@dataclass
class Agent:
    """`compactions` is how automatic compaction has fared in this worker."""

    spec: SessionSpec
    facts: ModelFacts
    core: SessionCore
    conversation: Conversation
    model: Model
    writer: RequestWriter
    prefix: Prefix
    equipment: Equipment
    tools_version: int
    connector: Connector = field(default_factory=Connector)
    context: str = ""
    """What SessionStart hooks want the model to know; it goes with this worker's first prompt."""
    compactions: Attempts = field(default_factory=Attempts)

    @property
    def tools(self) -> Toolbox:
        return self.equipment.tools

    @property
    def gate(self) -> Gate:
        return self.equipment.gate

    @property
    def hooks(self) -> Hooks:
        return self.equipment.hooks

    @property
    def is_stale(self) -> bool:
        """Another model was chosen, other tools are there, or a server is not that must be."""
        core, servers = self.core, self.core.mcp_servers
        changed = self.spec is not core.spec or self.tools_version != core.tools_version
        return changed or (servers is not None and bool(servers.missing()))

    def take_context(self) -> str:
        context, self.context = self.context, ""
        return context

    def emit(self, run: Run, update: updates.Update) -> None:
        self.core.log.emit(events.UPDATE, update, run.run_id)


@dataclass
class Progress:
    """What a run has done so far; its result is made from it however the run ends."""

    turns: int = 0
    tool_calls: int = 0
    text: str = ""
    provider_stop_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    stop_hooks: int = 0
    """Times a Stop hook has sent it on."""
    guard: LoopGuard = field(default_factory=LoopGuard)

    def result(self, reason: StopReason, error: dict[str, str] | None = None) -> AgentLoopResult:
        return AgentLoopResult(
            reason,
            self.turns,
            self.tool_calls,
            self.text,
            self.provider_stop_reason,
            self.usage,
            self.usage.cost_usd,
            error,
        )


async def prepare(agent: Agent) -> None:
    """Beside the first run: what somebody would have to wait for otherwise."""
    await agent.core.has_run.wait()
    await agent.prefix.count(agent.model, agent.connector.betas)
    # a model that is in no table of ours has its price in a catalogue that takes 0.6 s to load
    await asyncio.to_thread(cost_usd, {"input_tokens": 1}, agent.spec.provider, agent.spec.prices)
