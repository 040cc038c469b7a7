"""The agent loop, top to bottom: the outer loop takes prompts, the inner one calls the model
and runs the tools it asks for, until content blocks, budget or the user end it (design §9).
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from session_worker import updates
from session_worker.assembler import Assembler
from session_worker.conversation import Block, Conversation, tool_result
from session_worker.core import SessionCore
from session_worker.model import Model
from session_worker.model_error import ModelError
from session_worker.result import AgentLoopResult, Usage, context_tokens
from session_worker.run import Run
from session_worker.spec import SessionSpec
from session_worker.tools.toolbox import Toolbox
from session_worker.transcript import TranscriptFull
from session_worker.turn import AgentTurn, Step, StopReason, next_step
from sidecar.protocol import bounds, events

log = logging.getLogger(__name__)


@dataclass
class Agent:
    """What every run of a session shares."""

    spec: SessionSpec
    system: str
    core: SessionCore
    conversation: Conversation
    model: Model
    tools: Toolbox


@dataclass
class Progress:
    """What a run has done so far; its result is made from it however the run ends."""

    turns: int = 0
    tool_calls: int = 0
    text: str = ""
    provider_stop_reason: str | None = None
    usage: Usage = field(default_factory=Usage)

    def result(self, reason: StopReason, error: dict[str, str] | None = None) -> AgentLoopResult:
        return AgentLoopResult(
            reason,
            self.turns,
            self.tool_calls,
            self.text,
            self.provider_stop_reason,
            self.usage,
            error=error,
        )


async def serve_prompts(agent: Agent) -> None:
    """The outer loop: one iteration a prompt, for as long as the worker lives."""
    while True:
        run = await agent.core.next_run()
        async with asyncio.TaskGroup() as group:
            run.task = group.create_task(run_prompt(agent, run))
        unstarted = run.task.cancelled()  # cancelled before its first step
        agent.core.finish(
            run, Progress().result(StopReason.CANCELLED) if unstarted else run.task.result()
        )


async def run_prompt(agent: Agent, run: Run) -> AgentLoopResult:
    """One run. Answers a result however it ends; the history it leaves accepts another prompt.

    A run whose worker died goes on from its last committed message.
    """
    progress = Progress(turns=run.turns, tool_calls=run.tool_calls)
    try:
        _close_calls(agent, run, "interrupted, outcome unknown")  # a full disk may have left some
        if not agent.conversation.holds(run.run_id):
            _emit(agent, run, updates.chunk("user_message_chunk", run.prompt, str(uuid.uuid4())))
            agent.conversation.add_prompt([updates.text_block(run.prompt)], run.run_id)
        elif agent.conversation.is_answered():
            progress.text = "".join(run.output[-1:])
            return progress.result(StopReason.FINAL_ANSWER)
        return await _turns(agent, run, progress)
    except asyncio.CancelledError:
        if not run.cancel_asked:
            raise  # not the user's cancel: the worker itself is coming down
        _close_calls(agent, run, "cancelled by user")
        return progress.result(StopReason.CANCELLED)
    except ModelError as error:
        _close_calls(agent, run, "not executed: the model call failed")
        return progress.result(StopReason.ERROR, {"type": error.kind, "message": error.message})
    except TranscriptFull as error:
        return progress.result(StopReason.ERROR, {"type": "disk_full", "message": str(error)})
    except Exception:
        log.exception("run %s failed", run.run_id)
        _close_calls(agent, run, "interrupted, outcome unknown")
        message = "internal error; the details are in worker.log"
        return progress.result(StopReason.ERROR, {"type": "internal_error", "message": message})


async def _turns(agent: Agent, run: Run, progress: Progress) -> AgentLoopResult:
    """The inner loop: one iteration a model call."""
    container: str | None = None
    resends = 0
    while progress.turns < agent.spec.max_turns:
        progress.turns += 1
        turn = await _call_model(agent, run, progress, container)
        container = (turn.container or {}).get("id") or container
        step, reason = next_step(turn)
        if step is Step.DROP:
            return progress.result(reason or StopReason.REFUSAL)
        _commit(agent, run, progress, turn)
        resends = resends + 1 if step is Step.RESEND else 0
        match step:
            case Step.FINISH:
                return progress.result(reason or StopReason.FINAL_ANSWER)
            case Step.REFUSE_CALLS:
                _close_calls(agent, run, "not executed: truncated")
                return progress.result(reason or StopReason.MAX_TOKENS)
            case Step.RUN_CALLS if progress.turns == agent.spec.max_turns:
                _close_calls(agent, run, "not executed: turn limit")
            case Step.RUN_CALLS:
                await _run_calls(agent, run, progress, turn.tool_calls)
            case _ if resends > bounds.PAUSE_TURNS_MAX:
                break
            case _:
                pass
    return progress.result(StopReason.MAX_TURNS)


async def _call_model(
    agent: Agent, run: Run, progress: Progress, container: str | None
) -> AgentTurn:
    """One streamed call, told to clients as it comes. Nothing of it is kept before its end."""
    request: dict[str, Any] = {
        "model": agent.spec.provider.model,
        "max_tokens": agent.spec.max_tokens,
        "system": agent.system,
        "messages": agent.conversation.for_request(),
        "tools": agent.tools.schemas,
    }
    if container:
        request["extra_body"] = {"container": container}
    assembler = Assembler()
    began = time.monotonic()
    first_event_at: float | None = None
    message_id = ""
    async for event in agent.model.stream(request):
        if first_event_at is None:
            first_event_at = time.monotonic()
        assembler.feed(event)
        if event.get("type") == "message_start":
            message_id = event["message"].get("id") or str(uuid.uuid4())
        elif event.get("type") == "content_block_delta":
            _tell_delta(agent, run, event["delta"], message_id)
    message = assembler.message()
    turn = AgentTurn.from_response(message)
    progress.provider_stop_reason = turn.provider_stop_reason
    progress.usage.add(turn.usage)
    _record_call(agent, run, progress, message, began, first_event_at or began)
    return turn


def _tell_delta(agent: Agent, run: Run, delta: dict[str, Any], message_id: str) -> None:
    if delta.get("type") == "text_delta":
        _emit(agent, run, updates.chunk("agent_message_chunk", delta["text"], message_id))
    elif delta.get("type") == "thinking_delta":
        _emit(agent, run, updates.chunk("agent_thought_chunk", delta["thinking"], message_id))


def _record_call(
    agent: Agent,
    run: Run,
    progress: Progress,
    message: dict[str, Any],
    began: float,
    first_event_at: float,
) -> None:
    """The `api_call` record of design §8, with what this version measures."""
    usage: dict[str, Any] = message.get("usage") or {}
    total_in = context_tokens(usage)
    by_ttl: dict[str, Any] = usage.get("cache_creation") or {}
    written = usage.get("cache_creation_input_tokens") or 0
    written_1h = by_ttl.get("ephemeral_1h_input_tokens") or 0
    call: dict[str, Any] = {
        "turn": progress.turns,
        "model": message.get("model"),
        "ttfb_ms": round((first_event_at - began) * 1000, 1),
        "ms": round((time.monotonic() - began) * 1000, 1),
        "prefix_tokens": None,
        "message_tokens": None,
        "fresh": usage.get("input_tokens") or 0,
        "cache_read": usage.get("cache_read_input_tokens") or 0,
        "cache_write_5m": written - written_1h,
        "cache_write_1h": written_1h,
        "output": usage.get("output_tokens") or 0,
        "total_in": total_in,
        "window": agent.spec.provider.context_window,
        "cost_usd": None,
        "stop_reason": message.get("stop_reason"),
        "attempt": 1,
    }
    agent.core.transcript.append("api_call", run_id=run.run_id, **call)
    agent.core.log.emit(events.API_CALL, call, run.run_id)
    agent.core.count_call(usage, total_in)
    if window := agent.spec.provider.context_window:
        _emit(agent, run, updates.usage(total_in, window))


def _commit(agent: Agent, run: Run, progress: Progress, turn: AgentTurn) -> None:
    """Take a complete response into the history; an empty one would be refused ever after."""
    if turn.text:
        progress.text = turn.text
        run.output.append(turn.text)
    if turn.content:
        agent.conversation.add_assistant(turn.content, run.run_id)


async def _run_calls(agent: Agent, run: Run, progress: Progress, calls: list[Block]) -> None:
    """Run all calls and answer them in one user message, in call order."""
    finished: dict[str, Block] = {}
    progress.tool_calls += len(calls)
    try:
        await agent.tools.run(calls, run.run_id, finished)
    except asyncio.CancelledError:
        # what has finished has happened: its results are kept, the others say they did not end
        _close_calls(agent, run, "cancelled by user", finished)
        raise
    _close_calls(agent, run, "not executed", finished)


def _close_calls(
    agent: Agent, run: Run, otherwise: str, finished: dict[str, Block] | None = None
) -> None:
    """Answer every open call: by its result if it has one, else by `otherwise`, as an error.

    A history with an unanswered call would be refused with every later prompt.
    """
    known = finished or {}
    blocks: list[Block] = []
    for call in agent.conversation.open_calls():
        if call["id"] in known:
            blocks.append(known[call["id"]])
        else:
            blocks.append(tool_result(call["id"], otherwise, is_error=True))
            _emit(agent, run, updates.tool_call_ended(call["id"], otherwise, True, {}))
    if blocks:
        agent.conversation.add_results(blocks, run.run_id, str(agent.tools.shell.cwd))


def _emit(agent: Agent, run: Run, update: updates.Update) -> None:
    agent.core.log.emit(events.UPDATE, update, run.run_id)
