"""AgentLoopResult, the contract of a finished run (design §9), and the usage it sums up."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from session_worker.turn import StopReason


@dataclass
class Usage:
    """Tokens of all model calls so far. `input_tokens` counts the uncached ones only."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def add(self, api: dict[str, Any]) -> None:
        """Count one call's `usage` object of the Messages API."""
        self.input_tokens += api.get("input_tokens") or 0
        self.output_tokens += api.get("output_tokens") or 0
        self.cache_read_tokens += api.get("cache_read_input_tokens") or 0
        self.cache_write_tokens += api.get("cache_creation_input_tokens") or 0


def context_tokens(api: dict[str, Any]) -> int:
    """The true size of the prompt of one call: the API's `input_tokens` leaves out the cached."""
    keys = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(api.get(key) or 0 for key in keys)


@dataclass
class AgentLoopResult:
    """`error` is `{type, message}` when `stop_reason` is `error`, else null."""

    stop_reason: StopReason
    turns: int
    tool_calls: int
    final_text: str
    provider_stop_reason: str | None
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    error: dict[str, str] | None = None

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> AgentLoopResult:
        typed: dict[str, Any] = {
            **wire,
            "stop_reason": StopReason(wire["stop_reason"]),
            "usage": Usage(**wire["usage"]),
        }
        return cls(**typed)
