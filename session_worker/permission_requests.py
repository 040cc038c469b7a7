"""The session's pending questions: asked of every client, answered by one.

A question is state, not a message: it outlives the connection it was asked over, and whoever
attaches later finds it. No time that passes and no client that leaves ever means yes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from session_worker.attendance import Attendance
from session_worker.event_log import EventLog
from session_worker.permission_request import (
    CANCELLED,
    EXPIRED,
    SELECTED,
    UNATTENDED,
    Answer,
    PermissionRequest,
)
from sidecar.protocol import events


class NotPending(Exception):
    """The question was answered by somebody else, was withdrawn, or never asked."""


class UnknownOption(Exception):
    """The question does not offer that."""


class PermissionRequests:
    """`on_change` is called whenever a question comes up or is gone."""

    def __init__(self, log: EventLog, attendance: Attendance, headless_after_s: float) -> None:
        self._log = log
        self._attendance = attendance
        self._headless_after_s = headless_after_s
        self._pending: dict[str, PermissionRequest] = {}
        self._came = asyncio.Event()
        self.on_change: Callable[[], None] = lambda: None

    def pending(self) -> list[PermissionRequest]:
        """Oldest first; without those that have their answer already."""
        return [request for request in self._pending.values() if not request.answer.done()]

    def of_run(self, run_id: str) -> PermissionRequest | None:
        """The oldest question that a run waits for."""
        return next((r for r in self.pending() if r.run_id == run_id), None)

    async def wait_of_run(self, run_id: str) -> None:
        """Returns once the run waits for an answer."""
        while self.of_run(run_id) is None:
            await self._came.wait()

    async def ask(self, request: PermissionRequest, within_s: float | None = None) -> Answer:
        """The first answer of any client; `UNATTENDED` after a while without one to ask, `EXPIRED`
        after `within_s`.

        Cancelled with its run: then the question is withdrawn before the cancellation leaves.
        """
        answer = Answer(CANCELLED)
        self._pending[request.request_id] = request
        request.seq = self._log.emit(events.PERMISSION_REQUESTED, request.to_wire(), request.run_id)
        self._came.set()
        self._came.clear()
        self.on_change()
        try:
            answer = await self._answer(request, within_s)
        finally:
            del self._pending[request.request_id]
            resolved = {
                "request_id": request.request_id,
                "outcome": answer.outcome,
                "option_id": answer.option_id,
                "reason": answer.reason,
            }
            self._log.emit(events.PERMISSION_RESOLVED, resolved, request.run_id)
            self.on_change()
        return answer

    async def _answer(self, request: PermissionRequest, within_s: float | None) -> Answer:
        async with asyncio.TaskGroup() as group:
            alone = group.create_task(self._attendance.until_alone(self._headless_after_s))
            ways = (request.answer, alone)
            await asyncio.wait(ways, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            otherwise = Answer(UNATTENDED if alone.done() else EXPIRED)
            alone.cancel()
        return request.answer.result() if request.answer.done() else otherwise

    def answer(self, request_id: str, option: str | None, reason: str = "") -> PermissionRequest:
        """The question, settled by an option's id or kind; by None it is cancelled, as ACP-C has
        it. Raises `NotPending`, `UnknownOption`.
        """
        request = next((r for r in self.pending() if r.request_id == request_id), None)
        if request is None:
            raise NotPending
        if option is None:
            request.answer.set_result(Answer(CANCELLED, reason=reason))
        elif chosen := request.option(option):
            request.answer.set_result(Answer(SELECTED, chosen, reason))
        else:
            raise UnknownOption
        return request
