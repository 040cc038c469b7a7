"""One model call of the loop: attempts, until a whole answer is there or none will come.

Sending and waiting can be cancelled at any moment, and nothing is kept of what broke off but its
cost. What to do about a failure is decided in `recovery`, and done here.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from session_worker import compacting, updates
from session_worker.agent import Agent, Progress
from session_worker.assembler import Assembler, Event
from session_worker.blocks import Block
from session_worker.budget import exhausted
from session_worker.call_record import Stopwatch, record_call
from session_worker.compaction import BETA, needs_beta
from session_worker.model_error import ModelError
from session_worker.models import thinking_parameter
from session_worker.recovery import (
    Advice,
    Compact,
    DropContainer,
    Fail,
    Repair,
    Retry,
    Shorten,
    Tried,
    advise,
)
from session_worker.result import context_tokens
from session_worker.run import Run
from session_worker.server_calls import ServerCalls, telling_of_the_lost
from session_worker.transcript import TranscriptFull
from session_worker.turn import AgentTurn, StopReason
from sidecar.protocol import bounds, events


class CallFailed(Exception):
    """The run ends for `stop_reason`; `kind` and the message are for people."""

    def __init__(self, stop_reason: StopReason, kind: str, message: str) -> None:
        super().__init__(message)
        self.stop_reason = stop_reason
        self.error = {"type": kind, "message": message}


async def call_model(agent: Agent, run: Run, progress: Progress) -> AgentTurn:
    """The next answer, told to clients as it comes. Raises `CallFailed` and `TranscriptFull`."""
    tried, max_tokens = Tried(), agent.spec.max_tokens
    cut: AgentTurn | None = None
    while True:
        if why := exhausted(agent.spec.budget, agent.core.usage):
            raise CallFailed(StopReason.BUDGET, "budget", why)
        if agent.conversation.container_is_over(datetime.now(UTC)):
            with telling_of_the_lost(agent, run, "its container has expired"):
                agent.conversation.drop_container(run.run_id)
        tried = replace(
            tried,
            container=agent.conversation.container is not None,
            code_waits=agent.conversation.awaits_code(),
        )
        number = tried.attempt + (cut is not None)
        attempt = _Attempt(agent, run, progress, number)
        try:
            turn = await attempt.make(max_tokens)
        except ModelError as error:
            advice = advise(error, tried, random.random())
            if cut is not None and isinstance(advice, Fail):
                return _second_best(agent, run, cut)
            with telling_of_the_lost(agent, run, "the API does not go on with it"):
                max_tokens = await _follow(agent, run, progress, advice, number, max_tokens)
            tried = tried.then(advice)
            continue
        more = min(2 * max_tokens, agent.facts.max_output or 2 * max_tokens)
        if cut is not None or not (turn.cut_call and turn.provider_stop_reason == "max_tokens"):
            return turn
        if more <= max_tokens:
            return turn
        cut, max_tokens = turn, more
        attempt.server_calls.give_up("the answer was cut off")
        _tell_retry(agent, run, number, Retry(0, "a tool call was cut off at max_tokens", True))


async def _follow(
    agent: Agent, run: Run, progress: Progress, advice: Advice, number: int, max_tokens: int
) -> int:
    """Do what was advised before the next attempt; its `max_tokens`."""
    match advice:
        case Fail():
            raise CallFailed(advice.stop_reason, advice.kind, advice.message)
        case Retry():
            _tell_retry(agent, run, number, advice)
            await asyncio.sleep(advice.wait_s)
        case Shorten():
            _tell_retry(agent, run, number, Retry(0, "less room for the answer", False))
            return advice.max_tokens
        case Compact():
            _tell_retry(agent, run, number, Retry(0, "the context is full", False))
            if not await compacting.compact(agent, run, progress):
                why = "the context is full, and could not be compacted"
                raise CallFailed(StopReason.CONTEXT_LIMIT, "context_limit", why)
        case Repair():
            _tell_retry(agent, run, number, Retry(0, f"repaired: {advice.what}", False))
            agent.conversation.cure(advice.what, advice.paths, run.run_id)
        case DropContainer():
            _tell_retry(agent, run, number, Retry(0, "the container has expired", False))
            agent.conversation.drop_container(run.run_id)
    return max_tokens


def _second_best(agent: Agent, run: Run, cut: AgentTurn) -> AgentTurn:
    """The answer that was cut off: more room cannot be had. Clients were told to forget it."""
    if cut.text:
        agent.emit(run, updates.chunk("agent_message_chunk", cut.text, str(uuid.uuid4())))
    return cut


def _tell_retry(agent: Agent, run: Run, number: int, retry: Retry) -> None:
    data = {"attempt": number, "reason": retry.reason, "wait_s": round(retry.wait_s, 3)}
    agent.core.log.emit(events.RETRY, {**data, "discard": retry.discard}, run.run_id)


@dataclass
class _Attempt:
    """One request and its stream; `make` is called once."""

    agent: Agent
    run: Run
    progress: Progress
    number: int
    assembler: Assembler = field(default_factory=Assembler)
    watch: Stopwatch = field(default_factory=Stopwatch)
    message_id: str = ""

    def __post_init__(self) -> None:
        self.server_calls = ServerCalls(lambda update: self.agent.emit(self.run, update))

    async def make(self, max_tokens: int) -> AgentTurn:
        messages = self.agent.conversation.messages
        body = self.agent.writer.write(
            messages,
            max_tokens,
            thinking=thinking_parameter(self.agent.facts),
            container=self.agent.conversation.container,
        )
        try:
            betas = [BETA] if needs_beta(messages) else []
            message = await self._receive(body, [*self.agent.connector.betas, *betas])
        except ModelError as error:
            error.conceal(self.agent.connector.secrets)
            error.streamed = bool(self.message_id)
            self.server_calls.give_up("the answer broke off")
            self._record(None)
            raise
        except asyncio.CancelledError:
            self.server_calls.give_up("cancelled")
            with suppress(TranscriptFull):  # it is told by whatever is written next
                self._record(None)
            raise
        self.server_calls.stop_all()
        turn = AgentTurn.from_response(message)
        if turn.provider_stop_reason == "refusal":
            self.server_calls.give_up("the model refused")
        self.agent.prefix.calibrate(context_tokens(turn.usage), len(body))
        self._record(turn.provider_stop_reason)
        return turn

    async def _receive(self, body: bytes, betas: list[str]) -> dict[str, Any]:
        silence = asyncio.get_running_loop().call_later(
            bounds.MODEL_SILENCE_NOTICE_S, self._notice_silence
        )
        try:
            async for event in self.agent.model.stream(body, betas):
                self.watch.hear()
                self.assembler.feed(event)
                self._tell(event)
        finally:
            silence.cancel()
        return self.assembler.message()

    def _notice_silence(self) -> None:
        """Of a model that has not begun to answer; one that has is not waited for unseen."""
        if self.watch.first_event_at is None:
            waited = round(bounds.MODEL_SILENCE_NOTICE_S)
            self.agent.core.notice("info", f"The model has not answered for {waited} s.")

    def _tell(self, event: Event) -> None:
        match event:
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}:
                self._chunk("agent_message_chunk", text)
            case {"type": "content_block_delta", "delta": {"type": "thinking_delta", **delta}}:
                self._chunk("agent_thought_chunk", delta["thinking"])
            case {"type": "content_block_start", "content_block": block, "index": index}:
                self._tell_block(block)
                self.server_calls.start(index, self.assembler.newest)
            case {"type": "content_block_stop", "index": index}:
                self.server_calls.stop(index)
            case {"type": "message_start", "message": {**message}}:
                self.message_id = message.get("id") or str(uuid.uuid4())
                filled_in: list[Block] = message.get("content") or []
                for block in filled_in:
                    self._tell_block(block)
                    self.server_calls.start(None, block)
                    self.server_calls.stop(None)
            case _:
                pass

    def _tell_block(self, block: Block) -> None:
        """What was there before any delta: an answer may go on with what has been filled in."""
        match block:
            case {"type": "text", "text": str(text)} if text:
                self._chunk("agent_message_chunk", text)
            case {"type": "thinking", "thinking": str(thought)} if thought:
                self._chunk("agent_thought_chunk", thought)
            case _:
                pass

    def _chunk(self, kind: str, text: str) -> None:
        self.agent.emit(self.run, updates.chunk(kind, text, self.message_id))

    def _record(self, stop_reason: str | None) -> None:
        if usage := self.assembler.usage:
            record_call(
                self.agent, self.run, self.progress, usage, self.watch, stop_reason, self.number
            )
