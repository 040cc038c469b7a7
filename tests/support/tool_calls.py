"""Tool calls of a scripted model, and what it is told of them."""

from __future__ import annotations

from typing import Any

from session_worker.demo_model import Reply, tool_use
from tests.support.scripted import Scripted

Json = dict[str, Any]


def background(command: str) -> Json:
    return tool_use("bash", {"command": command, "run_in_background": True})


def output(job_id: str = "job-1", block_s: float = 0) -> Json:
    return tool_use("job_output", {"job_id": job_id, "block_s": block_s})


def stop(job_id: str = "job-1") -> Json:
    return tool_use("job_stop", {"job_id": job_id})


def results(scripted: Scripted, *calls: Json) -> list[Json]:
    """What the model is told of the calls of one turn, in their order."""
    scripted.completes(Reply(calls))
    return [block for block in scripted.sent[-1]["content"] if block["type"] == "tool_result"]


def told(scripted: Scripted, call: Json) -> str:
    """What the model is told of a call that succeeds."""
    [result] = results(scripted, call)
    assert not result.get("is_error"), result
    return result["content"]


def refused(scripted: Scripted, call: Json) -> str:
    """What the model is told of a call that fails."""
    [result] = results(scripted, call)
    assert result.get("is_error"), result
    return result["content"]
