"""The `api_call` record of one model call (design §8): its cost, and what filled its context."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from session_worker import updates
from session_worker.agent import Agent, Progress
from session_worker.prices import cost_usd
from session_worker.restore import COMPACTION
from session_worker.result import Tokens
from session_worker.run import Run
from sidecar.protocol import events


@dataclass
class Stopwatch:
    """Of one attempt; times are monotonic."""

    began: float = field(default_factory=time.monotonic)
    first_event_at: float | None = None

    def hear(self) -> None:
        if self.first_event_at is None:
            self.first_event_at = time.monotonic()

    def read(self) -> dict[str, float]:
        first = self.began if self.first_event_at is None else self.first_event_at
        return {
            "ttfb_ms": round((first - self.began) * 1000, 1),
            "ms": round((time.monotonic() - self.began) * 1000, 1),
        }


def record_call(
    agent: Agent,
    run: Run,
    progress: Progress,
    usage: dict[str, Any],
    watch: Stopwatch,
    stop_reason: str | None,
    attempt: int,
) -> None:
    """Write down and announce one attempt that the provider counted; a discarded one has no
    `stop_reason`, and costs all the same."""
    provider = agent.spec.provider
    tokens = Tokens.of(usage)
    cost = cost_usd(usage, provider, agent.spec.prices)
    prefix = min(agent.prefix.tokens, tokens.prompt)
    call: dict[str, Any] = {
        "turn": progress.turns,
        "model": provider.model,
        **watch.read(),
        "prefix_tokens": prefix,
        "message_tokens": tokens.prompt - prefix,
        **asdict(tokens),
        "total_in": tokens.prompt,
        "window": agent.facts.context_window,
        "cost_usd": cost,
        "stop_reason": stop_reason,
        "attempt": attempt,
        # what an attempt that broke off brought goes with the next, and counts once
        "kept_out": 0 if stop_reason in (None, COMPACTION) else agent.conversation.kept_out(),
    }
    progress.usage.add(tokens, cost)
    agent.core.transcript.append("api_call", run_id=run.run_id, **call)
    agent.core.log.emit(events.API_CALL, call, run.run_id)
    # a summary's own call says nothing of the context that it makes smaller
    held = None if stop_reason == COMPACTION else tokens.prompt + tokens.output
    agent.core.count_call(tokens, cost, held)
    tell_usage(agent, run)


def tell_usage(agent: Agent, run: Run) -> None:
    """How full the context is now, and what the session has cost, for gauges."""
    if window := agent.facts.context_window:
        agent.emit(run, updates.usage(agent.core.context_tokens, window, agent.core.usage.cost_usd))
