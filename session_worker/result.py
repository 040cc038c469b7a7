"""AgentLoopResult, the contract of a finished run (design §9), and the usage it sums up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from session_worker.turn import StopReason


@dataclass(frozen=True)
class Tokens:
    """Of one model call, each token counted once."""

    fresh: int
    cache_read: int
    cache_write_5m: int
    cache_write_1h: int
    output: int

    @property
    def prompt(self) -> int:
        """The true size of it: the API's `input_tokens` leaves out the cached."""
        return self.fresh + self.cache_read + self.cache_write_5m + self.cache_write_1h

    @classmethod
    def of(cls, usage: Mapping[str, Any]) -> Tokens:
        """Read off one `usage` object of the Messages API, all its iterations together."""
        return sum(map(_read, iterations(usage)), Tokens(0, 0, 0, 0, 0))

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.fresh + other.fresh,
            self.cache_read + other.cache_read,
            self.cache_write_5m + other.cache_write_5m,
            self.cache_write_1h + other.cache_write_1h,
            self.output + other.output,
        )


def iterations(usage: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The parts of a call that was several; the top level leaves out some, such as a compaction."""
    given = usage.get("iterations")
    parts = cast("list[Any]", given) if isinstance(given, list) else []
    return [part for part in parts if isinstance(part, dict)] or [usage]


def _read(part: Mapping[str, Any]) -> Tokens:
    written = number(part, "cache_creation_input_tokens")
    written_1h = number(part.get("cache_creation"), "ephemeral_1h_input_tokens")
    return Tokens(
        number(part, "input_tokens"),
        number(part, "cache_read_input_tokens"),
        written - written_1h,
        written_1h,
        number(part, "output_tokens"),
    )


def number(of: Any, name: str) -> int:
    """A count that a server gave, or 0: what is inside of `usage` nobody has checked."""
    value = cast("dict[str, Any]", of).get(name) if isinstance(of, dict) else None
    return value if isinstance(value, int) else 0


@dataclass
class Usage:
    """Tokens of all model calls so far. `input_tokens` counts the uncached ones only."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = 0.0
    """Null once a call had no known price: part of a sum would look like all of it."""

    @property
    def total_tokens(self) -> int:
        read_and_written = self.cache_read_tokens + self.cache_write_tokens
        return self.input_tokens + self.output_tokens + read_and_written

    def merge(self, other: Usage) -> None:
        """Count all that `other` has."""
        written, read = other.cache_write_tokens, other.cache_read_tokens
        self.add(Tokens(other.input_tokens, read, written, 0, other.output_tokens), other.cost_usd)

    def add(self, tokens: Tokens, cost_usd: float | None) -> None:
        """Count one call and its price."""
        self.input_tokens += tokens.fresh
        self.output_tokens += tokens.output
        self.cache_read_tokens += tokens.cache_read
        self.cache_write_tokens += tokens.cache_write_5m + tokens.cache_write_1h
        if self.cost_usd is not None:
            self.cost_usd = None if cost_usd is None else self.cost_usd + cost_usd


def context_tokens(api: dict[str, Any]) -> int:
    """The true size of the prompt of one call."""
    return Tokens.of(api).prompt


@dataclass
class AgentLoopResult:
    """`error` is `{type, message}`: what went wrong or ran out; null when nothing did."""

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
