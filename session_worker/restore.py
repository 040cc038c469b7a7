"""What a new worker knows of the session before it: its runs and its usage. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from session_worker.result import AgentLoopResult, Usage
from session_worker.run import Run
from session_worker.turn import AgentTurn

CANCEL_ASKED = "cancel_asked"
"""Text of the `note` that is written before a cancel is begun: a run that was being cancelled
when its worker died must not run again."""


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
    for record in records:
        match record["kind"]:
            case "run_started":
                run = Run(
                    record["prompt"],
                    first_seq=0,
                    run_id=record["run_id"],
                    created_at=record["at"],
                )
                by_id[run.run_id] = run
                restored.runs.append(run)
            case "message":
                if "cwd" in record:
                    restored.cwd = Path(record["cwd"])
                if run := by_id.get(record["run_id"]):
                    _add_message(run, record)
            case "api_call":
                restored.usage.input_tokens += record["fresh"]
                restored.usage.output_tokens += record["output"]
                restored.usage.cache_read_tokens += record["cache_read"]
                restored.usage.cache_write_tokens += (
                    record["cache_write_5m"] + record["cache_write_1h"]
                )
                restored.context_tokens = record["total_in"]
            case "note" if record.get("note") == CANCEL_ASKED:
                if run := by_id.get(record["run_id"]):
                    run.cancel_asked = True
            case "run_finished":
                restored.last_result = AgentLoopResult.from_wire(record["result"])
                if run := by_id.get(record["run_id"]):
                    run.result = restored.last_result
                    run.finished_at = record["at"]
                    run.finished_seq = 0
                    run.done.set()
            case _:
                pass
    return restored


def next_incarnation(records: Iterable[dict[str, Any]]) -> int:
    """The number of the worker that opens this transcript now: shim and daemon count too, but
    what they have counted dies with them."""
    return 1 + max((r["incarnation"] for r in records if r["kind"] == "session"), default=0)


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
