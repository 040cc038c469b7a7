"""A model response, normalised once, and the one rule that says how the loop goes on from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from session_worker.assembler import INVALID_JSON


class StopReason(StrEnum):
    """Why the agent loop ended (design §9)."""

    FINAL_ANSWER = "final_answer"
    MAX_TOKENS = "max_tokens"
    MAX_TURNS = "max_turns"
    CANCELLED = "cancelled"
    REFUSAL = "refusal"
    CONTEXT_LIMIT = "context_limit"
    BUDGET = "budget"
    LOOP_DETECTED = "loop_detected"
    ERROR = "error"


class Step(StrEnum):
    """What the loop does with a committed response."""

    RUN_CALLS = "run_calls"
    REFUSE_CALLS = "refuse_calls"
    RESEND = "resend"
    FINISH = "finish"
    DROP = "drop"


_TRUNCATED = {
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.CONTEXT_LIMIT,
}
UNFINISHED = frozenset({"pause_turn", "compaction"})


@dataclass(frozen=True)
class AgentTurn:
    """One model call. `content` is kept verbatim; everything else is read off it.

    `tool_calls` are the client's `tool_use` blocks, also those a server's code asks for.
    `server_tool_use` and `mcp_tool_use` run on the provider's side and are never ours.
    """

    content: list[dict[str, Any]]
    text: str
    tool_calls: list[dict[str, Any]]
    provider_stop_reason: str | None
    usage: dict[str, Any]
    container: dict[str, Any] | None

    @classmethod
    def from_response(cls, message: dict[str, Any]) -> AgentTurn:
        content: list[dict[str, Any]] = message["content"]
        return cls(
            content=content,
            text="".join(b.get("text") or "" for b in content if b.get("type") == "text"),
            tool_calls=[b for b in content if b.get("type") == "tool_use"],
            provider_stop_reason=message.get("stop_reason"),
            usage=message.get("usage") or {},
            container=message.get("container"),
        )

    @property
    def cut_call(self) -> bool:
        """Whether the provider stopped inside a call, which more room would have let it finish.

        No input at all counts as cut: the stop came before its first byte.
        """
        last = self.content[-1] if self.content else {}
        cut = self.provider_stop_reason in _TRUNCATED and last.get("type") == "tool_use"
        return cut and last["input"].keys() <= {INVALID_JSON}


def next_step(turn: AgentTurn) -> tuple[Step, StopReason | None]:
    """The continuation rule of design §9: blocks decide, the stop reason explains and vetoes.

    On a plain reply this is the branch on `stop_reason`: `tool_use` runs and loops, `end_turn`
    answers. But streams deliver blocks and stop metadata in different events, and a reply that
    waits for a tool may say `tool_use`, `pause_turn` or nothing; its blocks are there every time.
    """
    provider = turn.provider_stop_reason or ""
    if provider == "refusal":
        return Step.DROP, StopReason.REFUSAL
    if turn.tool_calls:
        if cut := _TRUNCATED.get(provider):
            return Step.REFUSE_CALLS, cut
        return Step.RUN_CALLS, None
    if provider in UNFINISHED:
        return Step.RESEND, None
    return Step.FINISH, _TRUNCATED.get(provider, StopReason.FINAL_ANSWER)
