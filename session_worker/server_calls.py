"""Calls that the provider runs itself, told to clients like those that run here.

The result of one may be in a later answer than the call: it is told by its id. A call that will
have none any more is told to have failed, so that no client shows it at work for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from session_worker import updates
from session_worker.agent import Agent
from session_worker.blocks import SERVER_CALLS, Block, is_server_result
from session_worker.run import Run
from session_worker.updates import Update


class ServerCalls:
    """Those of one attempt of a model call, told as they come."""

    def __init__(self, tell: Callable[[Update], None]) -> None:
        self._tell = tell
        self._open: dict[object, Block] = {}
        self._running: list[str] = []

    def start(self, index: object, block: Block) -> None:
        """A block has begun. `block` is the one that its deltas fill in, or is whole."""
        if block["type"] in SERVER_CALLS:
            self._open[index] = block
        elif is_server_result(block):
            self._end(block)

    def stop(self, index: object) -> None:
        """A block is whole."""
        if (block := self._open.pop(index, None)) and (update := updates.server_call(block)):
            self._running.append(update["toolCallId"])
            self._tell(update)

    def stop_all(self) -> None:
        """The answer is whole."""
        for index in list(self._open):
            self.stop(index)

    def give_up(self, why: str) -> None:
        """The answer does not count."""
        for call_id in self._running:
            self._tell(updates.server_call_given_up(call_id, why))
        self._running.clear()

    def _end(self, result: Block) -> None:
        if update := updates.server_call_ended(result):
            if update["toolCallId"] in self._running:
                self._running.remove(update["toolCallId"])
            self._tell(update)


@contextmanager
def telling_of_the_lost(agent: Agent, run: Run, why: str) -> Generator[None]:
    """Around what may give up calls of the provider that wait for their results."""
    before = agent.conversation.server_calls()
    yield
    for call_id in before - agent.conversation.server_calls():
        agent.emit(run, updates.server_call_given_up(call_id, why))


def tell_unfinished(agent: Agent, run: Run) -> None:
    """At the end of a run: what the user says next gives up all that still waits."""
    for call_id in agent.conversation.server_calls():
        agent.emit(run, updates.server_call_given_up(call_id, "the run ended first"))
