"""Compaction at work: asks for a summary, writes it down, says so (`compaction` decides)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from session_worker.agent import Agent, Progress
from session_worker.assembler import Assembler
from session_worker.blocks import Block, Message
from session_worker.budget import exhausted
from session_worker.call_record import Stopwatch, record_call, tell_usage
from session_worker.compaction import (
    BETA,
    Attempts,
    By,
    CompactionFailed,
    announcement,
    border,
    is_due,
    keep_tokens,
    needs_beta,
    note,
    summary_of,
    summary_request,
)
from session_worker.model_error import ModelError
from session_worker.models import thinking_parameter
from session_worker.restore import COMPACTION
from session_worker.result import AgentLoopResult
from session_worker.run import Run
from session_worker.turn import StopReason

log = logging.getLogger(__name__)


async def compact_if_due(agent: Agent, run: Run, progress: Progress) -> None:
    """Before a model call: compact when the context is nearly full, unless that keeps failing."""
    due = is_due(agent.core.context_tokens, agent.facts.context_window, agent.spec.max_tokens)
    was_off = agent.compactions.off
    agent.compactions = agent.compactions.measured(due)
    if exhausted(agent.spec.budget, agent.core.usage):
        return  # the call that follows says so
    if due and not agent.compactions.off and await compact(agent, run, progress):
        agent.compactions = agent.compactions.compacted()
    if agent.compactions.off and not was_off:
        agent.core.notice(
            "warning",
            f"The conversation is no longer compacted by itself: {agent.compactions.cause}.",
        )


async def compact_by_hand(agent: Agent, run: Run, progress: Progress) -> AgentLoopResult:
    """The run that `POST /sessions/{id}/compact` asks for."""
    if run.output:  # done by a worker that died before it could say so
        progress.text = run.output[-1]
        return progress.result(StopReason.FINAL_ANSWER)
    if why := exhausted(agent.spec.budget, agent.core.usage):
        return progress.result(StopReason.BUDGET, {"type": "budget", "message": why})
    try:
        progress.text = await _compact(agent, run, progress, run.compact or "")
    except (CompactionFailed, ModelError) as error:
        failure = {"type": "compaction_failed", "message": str(error)}
        return progress.result(StopReason.ERROR, failure)
    run.output.append(progress.text)
    agent.compactions = Attempts()
    return progress.result(StopReason.FINAL_ANSWER)


async def compact(agent: Agent, run: Run, progress: Progress) -> bool:
    """Put a summary in the place of all but the newest messages. False if that failed."""
    try:
        await _compact(agent, run, progress)
    except (CompactionFailed, ModelError) as error:
        log.warning("compaction failed: %s", error)
        agent.compactions = agent.compactions.failed(str(error))
        agent.core.notice("warning", f"The conversation could not be compacted: {error}.")
        return False
    return True


async def _compact(agent: Agent, run: Run, progress: Progress, focus: str = "") -> str:
    """What to tell people of it. Raises `CompactionFailed` and `ModelError`."""
    window, max_tokens = agent.facts.context_window, agent.spec.max_tokens
    messages = agent.conversation.messages
    at = border(messages, keep_tokens(window, max_tokens))
    if at is None:
        raise CompactionFailed("there is too little before the last turns to be worth a summary")
    trigger = "auto" if run.compact is None else "manual"
    told = {"trigger": trigger, "custom_instructions": focus}
    heard = await agent.hooks.fire("PreCompact", trigger, told)
    agent.gate.heard(heard)
    focus = "\n".join(text for text in (focus, heard.context) if text)
    by: By = "api" if agent.facts.compaction else "own"
    try:
        summary = await _ask(agent, run, progress, messages[:at], by, focus)
    except ModelError as error:
        if by == "own" or error.status != 400:
            raise
        by = "own"
        summary = await _ask(agent, run, progress, messages[:at], by, focus)
    fields = note(by, summary, messages, at, agent.core.context_tokens)
    agent.conversation.compact(fields, run.run_id)
    agent.core.now_holds(fields["tokens_after"])
    agent.core.notice("info", announcement(fields))
    tell_usage(agent, run)
    told = {"trigger": trigger, "summary": announcement(fields)}
    agent.gate.heard(await agent.hooks.fire("PostCompact", trigger, told))
    return announcement(fields)


async def _ask(
    agent: Agent, run: Run, progress: Progress, prefix: Sequence[Message], by: By, focus: str
) -> list[Block]:
    """The blocks of the summary. Costs like any call, and is recorded as one."""
    messages, more = summary_request(prefix, by, agent.spec.max_tokens, focus=focus)
    limit = more.pop("max_tokens")
    body = agent.writer.write(messages, limit, thinking=thinking_parameter(agent.facts), **more)
    betas = [BETA] if by == "api" or needs_beta(messages) else []
    assembler, watch = Assembler(), Stopwatch()
    try:
        async for event in agent.model.stream(body, [*agent.connector.betas, *betas]):
            watch.hear()
            assembler.feed(event)
        return summary_of(assembler.message(), by)
    except ModelError as error:
        error.conceal(agent.connector.secrets)
        raise
    finally:
        if usage := assembler.usage:
            record_call(agent, run, progress, usage, watch, COMPACTION, 1)
