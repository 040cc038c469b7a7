"""What a new worker knows of the session before it: its runs and its usage. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from session_worker.compaction import COMPACTED, announcement
from session_worker.result import AgentLoopResult, Tokens, Usage
from session_worker.run import Run
from session_worker.turn import AgentTurn

CANCEL_ASKED = "cancel_asked"
"""Text of the `note` that is written before a cancel is begun: a run that was being cancelled
when its worker died must not run again."""

SUBAGENT_CALL = "subagent_call"
"""Text of the `note` about one model call of a subagent, which counts as the session's."""

COMPACTION = "compaction"
"""`stop_reason` of the `api_call` that a summary was."""


@dataclass
class Restored:
    """`runs` in the order of their acceptance; those without a result have not ended."""

    runs: list[Run] = field(default_factory=list[Run])
    usage: Usage = field(default_factory=Usage)
    context_tokens: int = 0
    cwd: Path | None = None
    """Where the last command ended."""
    last_result: AgentLoopResult | None = None


def restore(records: Iterable[dict[str, Any]]) -> Restored:
    """Read off the transcript's records, oldest first."""
    restored = Restored()
    by_id: dict[str, Run] = {}
    under_way: Run | None = None
    for record in records:
        match record["kind"]:
            case "run_started":
                run = Run(
                    record["prompt"],
                    first_seq=0,
                    steer=record.get("steer", False),
                    content=record.get("content"),
                    compact=record.get("compact"),
                    command=record.get("command", False),
                    run_id=record["run_id"],
                    created_at=record["at"],
                )
                by_id[run.run_id] = run
                restored.runs.append(run)
            case "message":
                if "cwd" in record:
                    restored.cwd = Path(record["cwd"])
                if run := by_id.get(record["run_id"]):
                    went_along = run.steer and under_way is not None and under_way.result is None
                    if went_along and under_way is not run:
                        run.host = under_way
                    else:
                        under_way = run
                    _add_message(run, record)
            case "note" if record.get("note") == SUBAGENT_CALL:
                restored.usage.add(_tokens(record), record["cost_usd"])
            case "api_call":
                tokens = _tokens(record)
                restored.usage.add(tokens, record["cost_usd"])
                if record["stop_reason"] != COMPACTION:
                    restored.context_tokens = tokens.prompt + tokens.output
            case "note" if record.get("note") == COMPACTED:
                restored.context_tokens = record["tokens_after"]
                run = by_id.get(record["run_id"])
                if run is not None and run.compact is not None:
                    run.output = [announcement(record)]
            case "note" if record.get("note") == CANCEL_ASKED:
                if run := by_id.get(record["run_id"]):
                    run.cancel_asked = True
            case "run_finished":
                restored.last_result = AgentLoopResult.from_wire(record["result"])
                if run := by_id.get(record["run_id"]):
                    run.result = restored.last_result
                    run.finished_at = record["at"]
                    run.finished_seq = 0
                    if run.host is not None:
                        run.output = [text for text in (run.result.final_text,) if text]
                    run.done.set()
            case _:
                pass
    return restored


def restored_system(records: Iterable[dict[str, Any]]) -> str | None:
    """The system prompt the session began with: it holds the day, and must not change with it."""
    kinds = ("note", "session")  # it was in the session's own record once
    return next((r["system"] for r in records if r["kind"] in kinds and "system" in r), None)


def next_incarnation(records: Iterable[dict[str, Any]]) -> int:
    """The number of the worker that opens this transcript now: shim and daemon count too, but
    what they have counted dies with them."""
    return 1 + max((r["incarnation"] for r in records if r["kind"] == "session"), default=0)


def _tokens(record: dict[str, Any]) -> Tokens:
    return Tokens(**{field.name: record[field.name] for field in fields(Tokens)})


def _add_message(run: Run, record: dict[str, Any]) -> None:
    run.started_at = run.started_at or record["at"]
    message = record["message"]
    if message["role"] != "assistant":
        return
    turn = AgentTurn.from_response(message)
    run.turns += 1
    run.tool_calls += len(turn.tool_calls)
    if turn.text:
        run.output.append(turn.text)
