"""One run of a subagent as its parent lives through it, from the prompt to the result.

Its texts and tool titles become live output of the `task` call, its questions are asked as the
parent's, and what its model calls use is counted as the parent's. Nothing it says ends the parent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

from session_worker.budget import exhausted
from session_worker.core import SessionCore
from session_worker.permission_request import REJECT_ONCE, UNATTENDED, Answer, PermissionRequest
from session_worker.result import Tokens
from session_worker.run import Run
from session_worker.subagents.endpoint import Endpoint, Unanswered
from session_worker.tools.task import TASK
from sidecar.protocol import bounds, events

Json = dict[str, Any]
Ask = Callable[[PermissionRequest], Awaitable[Answer]]
Ended = Callable[[], Awaitable[str | None]]
"""Why the session is no more, None as far as is known."""

NOBODY = "nobody was there to be asked"
CALLS_TOOLS = "tool_use"
"""`stop_reason` of a model call after which another one comes."""


class Following:
    """One `task` call. `result` is called once."""

    def __init__(
        self,
        core: SessionCore,
        run: Run,
        call_id: str,
        title: str,
        child: Json,
        endpoint: Endpoint,
        ask: Ask,
        ended: Ended,
    ) -> None:
        """`call_id` and `title` are the call's, `child` is the SessionInfo."""
        self._core = core
        self._run = run
        self._call_id = call_id
        self._title = title
        self._child = child
        self._endpoint = endpoint
        self._ask = ask
        self._ended = ended
        self._relays: dict[str, asyncio.Task[None]] = {}
        """Questions that are open, by their id in the subagent."""
        self._unshown = ""
        self._shown_at = 0.0

    async def result(self, prompt: str) -> Json | str:
        """Its AgentLoopResult, or why there is none."""
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._begin(prompt, group))
            stricter = group.create_task(self._core.until_stricter_than(self._child["mode"]))
            try:
                await asyncio.wait((following, stricter), return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    return following.result()
                return f"the session's mode is {self._core.mode} now, stricter than it began in"
            finally:
                self._flush()
                for task in (following, stricter, *self._relays.values()):
                    task.cancel()

    async def _begin(self, prompt: str, relays: asyncio.TaskGroup) -> Json | str:
        try:
            return await self._follow(await self._endpoint.start(prompt), relays)
        except Unanswered as error:
            return await self._ended() or f"it did not take its task ({error})"

    async def _follow(self, run_id: str, relays: asyncio.TaskGroup) -> Json | str:
        cursor, silent_since = 0, None
        while True:
            try:
                # also when a stream was lost: the end may have been told on it
                if result := await self._endpoint.result(run_id):
                    return result
                async with aclosing(self._endpoint.events(cursor)) as stream:
                    async for event in stream:
                        silent_since = None
                        cursor = max(cursor, event["seq"])
                        if over := await self._take(event, run_id, relays):
                            return over
            except Unanswered:
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > bounds.SUBAGENT_SILENT_S:
                    return "its endpoint does not answer any more"
            if why := await self._ended():
                return why
            await asyncio.sleep(bounds.SUBAGENT_RETRY_S)

    async def _take(self, event: Json, run_id: str, relays: asyncio.TaskGroup) -> Json | str | None:
        """What follows from one event; the result once there is one."""
        match event:
            case {"type": events.UPDATE, "data": data}:
                self._show(shown(data))
            case {"type": events.API_CALL, "data": data}:
                return self._count(data)
            case {"type": events.PERMISSION_RESOLVED, "data": {"request_id": request_id}}:
                if relay := self._relays.pop(request_id, None):
                    relay.cancel()  # perhaps it was answered there
            case {"type": events.PERMISSION_REQUESTED | events.GAP}:
                await self._relay_all(relays)
                return await self._endpoint.result(run_id)
            case {"type": events.RUN_FINISHED, "run_id": finished} if finished == run_id:
                return await self._endpoint.result(run_id)
            case _:
                pass
        return None

    def _count(self, call: Json) -> str | None:
        """Why it has to end: several may use up the budget together, of which each knows only what
        was left when it began."""
        tokens = Tokens(**{name: call[name] for name in Tokens.__annotations__})
        self._core.count_subagent(self._run, tokens, call["cost_usd"])
        if call["stop_reason"] != CALLS_TOOLS:
            return None
        return exhausted(self._core.spec.budget, self._core.usage)

    async def _relay_all(self, relays: asyncio.TaskGroup) -> None:
        """The questions that are open now, and no others."""
        is_open = {
            question["request_id"]: question for question in await self._endpoint.questions()
        }
        for gone in self._relays.keys() - is_open:
            self._relays.pop(gone).cancel()
        for request_id in is_open.keys() - self._relays:
            relay = relays.create_task(self._relay(is_open[request_id]))
            self._relays[request_id] = relay

    async def _relay(self, question: Json) -> None:
        """Ask it as a question of the parent, about the `task` call: clients know that one."""
        self._flush()
        call: Json = question["toolCall"]
        shown_as = {"toolCallId": self._call_id, "title": f"{self._title}: {call['title']}"}
        mine = PermissionRequest(
            self._run.run_id,
            {name: call[name] for name in call if name != "status"} | shown_as,
            question["options"],
            {
                **question["_meta"]["sidecar"],
                "subagent": {
                    "session_id": self._child["session_id"],
                    "request_id": question["request_id"],
                },
            },
        )
        try:
            answer = await self._ask(mine)
        finally:
            update: Json = {
                "sessionUpdate": "tool_call_update",
                "toolCallId": self._call_id,
                "title": self._title,  # some clients show the question's meanwhile
                "kind": TASK.kind,
            }
            self._core.log.emit(events.UPDATE, update, self._run.run_id)
        option, reason = answer.option_id, answer.reason
        if answer.outcome == UNATTENDED:
            option, reason = REJECT_ONCE, NOBODY
        with suppress(Unanswered):  # it has ended, or somebody answered there
            await self._endpoint.answer(question["request_id"], option, reason)

    # --- live output -----------------------------------------------------------------------

    def _show(self, text: str) -> None:
        self._unshown = (self._unshown + text)[-bounds.TOOL_OUTPUT_BYTES :]
        if time.monotonic() - self._shown_at > bounds.SUBAGENT_SHOW_S:
            self._flush()

    def _flush(self) -> None:
        if self._unshown:
            output = {"tool_call_id": self._call_id, "text": self._unshown}
            self._core.log.emit(events.TOOL_OUTPUT, output, self._run.run_id)
            self._unshown, self._shown_at = "", time.monotonic()


def shown(update: Mapping[str, Any]) -> str:
    """What of a subagent's update is shown with its task: what it says, and what it does."""
    match update:
        case {"sessionUpdate": "agent_message_chunk", "content": {"text": str(text)}}:
            return text
        case {"sessionUpdate": "tool_call_update", "status": "in_progress", "title": str(title)}:
            return f"\n> {title}\n"
        case _:
            return ""
