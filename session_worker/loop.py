"""The agent loop, top to bottom: the outer loop takes prompts, the inner one calls the model
and runs the tools it asks for, until content blocks, budget or the user end it (design §9).
"""

from __future__ import annotations

import asyncio
import logging
import uuid

from session_worker import commands, compacting, updates
from session_worker.agent import Agent, Progress
from session_worker.blocks import Block, tool_result
from session_worker.loop_guard import is_stuck
from session_worker.model_call import CallFailed, call_model
from session_worker.project.reading import Refused
from session_worker.result import AgentLoopResult
from session_worker.run import Run
from session_worker.server_calls import tell_unfinished
from session_worker.tools.skill import loaded
from session_worker.tools.spec import ToolResult
from session_worker.transcript import TranscriptFull
from session_worker.turn import AgentTurn, Step, StopReason, next_step
from sidecar.protocol import bounds

log = logging.getLogger(__name__)

_NOBODY_TO_ASK = {
    "type": "permission_required",
    "message": "a call needed a permission, and nobody was there to give it; "
    "allow it with a rule, or attach a client",
}


async def serve_prompts(agent: Agent) -> None:
    """The outer loop: one iteration a prompt, for as long as nothing else was chosen."""
    while True:
        await agent.core.wait_for_work()
        if agent.is_stale:
            return
        run = await agent.core.next_run()
        async with asyncio.TaskGroup() as group:
            run.task = group.create_task(run_prompt(agent, run))
        unstarted = run.task.cancelled()  # cancelled before its first step
        tell_unfinished(agent, run)
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
        if run.compact is not None:
            return await compacting.compact_by_hand(agent, run, progress)
        if not agent.conversation.holds(run.run_id):
            if refusal := await _say_prompt(agent, run):
                return progress.result(StopReason.ERROR, refusal)
        elif answer := agent.conversation.answer():
            return _answered(progress, answer)
        return await _turns(agent, run, progress)
    except asyncio.CancelledError:
        if not run.cancel_asked:
            raise  # not the user's cancel: the worker itself is coming down
        _close_calls(agent, run, "cancelled by user")
        return progress.result(StopReason.CANCELLED)
    except CallFailed as error:
        _close_calls(agent, run, "not executed: the model call failed")
        return progress.result(error.stop_reason, error.error)
    except TranscriptFull as error:
        return progress.result(StopReason.ERROR, {"type": "disk_full", "message": str(error)})
    except Exception:
        log.exception("run %s failed", run.run_id)
        _close_calls(agent, run, "interrupted, outcome unknown")
        message = "internal error; the details are in worker.log"
        return progress.result(StopReason.ERROR, {"type": "internal_error", "message": message})


async def _turns(agent: Agent, run: Run, progress: Progress) -> AgentLoopResult:
    """The inner loop: one iteration a model call."""
    resends = 0
    while progress.turns < agent.spec.max_turns:
        progress.turns = run.turns = progress.turns + 1
        await compacting.compact_if_due(agent, run, progress)
        turn = await call_model(agent, run, progress)
        progress.provider_stop_reason = turn.provider_stop_reason
        step, reason = next_step(turn)
        if step is Step.DROP:
            return progress.result(reason or StopReason.REFUSAL)
        _commit(agent, run, progress, turn)
        resends = resends + 1 if step is Step.RESEND else 0
        match step:
            case Step.FINISH if word := await _stop_word(agent, progress, turn, reason):
                agent.conversation.add_prompt([updates.text_block(word)], run.run_id)
            case Step.FINISH:
                return progress.result(reason or StopReason.FINAL_ANSWER)
            case Step.REFUSE_CALLS:
                _close_calls(agent, run, "not executed: truncated")
                return progress.result(reason or StopReason.MAX_TOKENS)
            case Step.RUN_CALLS if progress.turns == agent.spec.max_turns:
                _close_calls(agent, run, "not executed: turn limit")
            case Step.RUN_CALLS:
                calls = agent.conversation.open_calls()
                counts = [progress.guard.count(call) for call in calls]
                if is_stuck(counts):
                    _close_calls(agent, run, "not executed: the same call again and again")
                    return progress.result(StopReason.LOOP_DETECTED)
                await _run_calls(agent, run, progress, calls, counts)
                if agent.gate.unanswered:
                    return progress.result(StopReason.ERROR, _NOBODY_TO_ASK)
                await _take_steering(agent, run)
            case _ if resends > bounds.PAUSE_TURNS_MAX:
                break
            case _:
                pass
    return progress.result(StopReason.MAX_TURNS)


def _answered(progress: Progress, answer: AgentTurn) -> AgentLoopResult:
    """An earlier worker died between this answer and the end of the run."""
    progress.text, progress.provider_stop_reason = answer.text, answer.provider_stop_reason
    _, reason = next_step(answer)
    return progress.result(reason or StopReason.FINAL_ANSWER)


async def _say_prompt(agent: Agent, run: Run) -> dict[str, str] | None:
    """Why a hook does not let the prompt in, as an error; or None, and it is said."""
    heard = await agent.hooks.fire("UserPromptSubmit", "", {"prompt": run.prompt})
    if objections := agent.gate.heard(heard):
        return {"type": "prompt_blocked", "message": "\n".join(objections)}
    prompt = run.content or [updates.text_block(run.prompt)]
    message_id = str(uuid.uuid4())
    for block in prompt:
        agent.emit(run, updates.user_content(block, message_id))
    news = [*agent.tools.take_untold(), *agent.tools.jobs.take_news()]
    more = [_skill(agent, run), agent.take_context(), heard.context, *news]
    blocks = [*prompt, *(updates.text_block(text) for text in more if text)]
    agent.conversation.add_prompt(blocks, run.run_id)
    return None


def _skill(agent: Agent, run: Run) -> str:
    """The text of the skill that a prompt runs by its name; of an unknown one nothing."""
    first = run.content[0].get("text", "") if run.content else run.prompt
    typed = commands.typed(first) if run.command else None
    skill = agent.tools.skills.get(typed[0]) if typed else None
    if typed is None or skill is None or not skill.is_command:
        return ""
    try:
        return loaded(skill, typed[1])
    except Refused as error:
        agent.core.notice("warning", f"The skill {skill.name} cannot be read: {error}")
        return ""


async def _stop_word(
    agent: Agent, progress: Progress, turn: AgentTurn, reason: StopReason | None
) -> str:
    """What a Stop hook still wants done; empty if the run may end."""
    ends_well = reason is StopReason.FINAL_ANSWER and turn.content
    # on the last turn a deny would turn an answer into `max_turns`
    last = progress.stop_hooks >= bounds.STOP_HOOKS_MAX or progress.turns == agent.spec.max_turns
    if last or not ends_well:
        return ""
    payload = {"stop_hook_active": progress.stop_hooks > 0, "last_assistant_message": turn.text}
    words = agent.gate.heard(await agent.hooks.fire("Stop", "", payload))
    progress.stop_hooks += len(words)
    return "\n".join(words)


async def _take_steering(agent: Agent, run: Run) -> None:
    """Prompts that asked not to wait for the end of the run go along with the tool results."""
    if agent.conversation.awaits_code():
        return  # code that waits for results takes nothing else (anthropic.md §3.2)
    for steering in agent.core.take_steering(run):
        if refusal := await _say_prompt(agent, steering):
            agent.core.finish(steering, Progress().result(StopReason.ERROR, refusal))


def _commit(agent: Agent, run: Run, progress: Progress, turn: AgentTurn) -> None:
    """Take a complete response into the history; an empty one would be refused ever after."""
    if turn.text:
        progress.text = turn.text
        run.output.append(turn.text)
    if turn.content:
        agent.conversation.add_answer(turn, run.run_id)


async def _run_calls(
    agent: Agent, run: Run, progress: Progress, calls: list[Block], counts: list[int]
) -> None:
    """Run all calls and answer them in one user message, in call order."""
    finished: dict[str, Block] = {}
    progress.tool_calls += len(calls)
    try:
        await agent.tools.run(calls, counts, run.run_id, finished)
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
            agent.emit(run, updates.tool_call_ended(call["id"], ToolResult(otherwise, True)))
    if blocks:
        agent.conversation.add_results(blocks, str(agent.tools.shell.cwd))
