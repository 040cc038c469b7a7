"""What the `task` tool does: make a child session, follow its run, end it, tell its last word.

The daemon starts and ends the child; the run itself needs no daemon. Whatever becomes of a call,
its child is ended, and if no daemon is there to do it, as soon as one is.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from session_worker.budget import exhausted, left
from session_worker.core import SessionCore
from session_worker.gate import Gate
from session_worker.memory import Memory
from session_worker.run import Run
from session_worker.subagents.control import NoDaemon, call
from session_worker.subagents.endpoint import Endpoint, Unanswered
from session_worker.subagents.following import Following
from session_worker.tools.spec import ToolContext, ToolResult
from sidecar.protocol import bounds, events
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.methods import ENDED_STATES
from sidecar.protocol.rules import Rule

Json = dict[str, Any]

NO_DAEMON = (
    "No subagent was started: the daemon, which starts them, does not answer. "
    "Do the work yourself, or say that it is not done."
)


class Subagents:
    """One session's. `tasks` is the parent of what goes on behind a result."""

    def __init__(
        self, core: SessionCore, gate: Gate, memory: Memory, tasks: asyncio.TaskGroup
    ) -> None:
        self._core = core
        self._gate = gate
        self._memory = memory
        self._tasks = tasks
        self._slots = asyncio.Semaphore(bounds.SUBAGENTS_MAX)

    async def delegate(self, prompt: str, description: str, ctx: ToolContext) -> ToolResult:
        """Have a subagent do what `prompt` says; its answer. `description` is for people."""
        run = self._core.current
        assert run is not None, "tools are called by runs"
        async with self._slots:
            if why := exhausted(self._core.spec.budget, self._core.usage):
                return ToolResult(f"No subagent was started: {why}.", is_error=True)
            name = child_name(description)
            # in a task: a cancel must not lose sight of a child that is being made
            creating = self._tasks.create_task(self._create(name, run))
            try:
                made = await asyncio.shield(creating)
                if isinstance(made, str):
                    return ToolResult(made, is_error=True)
                return await self._follow(made, prompt, description, run, ctx)
            finally:
                tried = asyncio.Event()
                self._tasks.create_task(self._end(name, creating, tried))
                with suppress(TimeoutError):
                    async with asyncio.timeout(bounds.SUBAGENT_END_S):
                        await tried.wait()

    async def _create(self, name: str, run: Run) -> Json | str:
        """The child's SessionInfo, or what to tell the model."""
        params = child_params(self._core, run, name, self._memory.rejected())
        try:
            return await self._call("session.create", params, bounds.SUBAGENT_CREATE_S)
        except NoDaemon:
            return NO_DAEMON
        except SidecarError as error:
            return f"No subagent was started: {error.message} ({error.hint})."

    async def _follow(
        self, child: Json, prompt: str, description: str, run: Run, ctx: ToolContext
    ) -> ToolResult:
        who = {"session_id": child["session_id"], "name": child["name"]}
        update: Json = {
            "sessionUpdate": "tool_call_update",
            "toolCallId": ctx.call_id,
            "_meta": {"sidecar/subagent": who | {"socket": child["endpoint"]["socket"]}},
        }
        self._core.log.emit(events.UPDATE, update, run.run_id)

        async with Endpoint(child, self._core.spec.ring_bytes) as endpoint:
            following = Following(
                self._core,
                run,
                ctx.call_id,
                description,
                child,
                endpoint,
                self._gate.put,
                partial(self._why_ended, child["session_id"]),
            )
            return told(await following.result(prompt), who)

    async def _why_ended(self, session_id: str) -> str | None:
        """None also where no daemon can tell."""
        try:
            info = await self._call("session.status", {"session_id": session_id}, bounds.HEALTH_S)
        except NoDaemon:
            return None
        except SidecarError as error:
            return error.message if error.code == "session_not_found" else None
        if info["state"] not in ENDED_STATES:
            return None
        reason = info["exit"] and info["exit"]["reason"]
        return f"its session {info['state']} ({reason})" if reason else f"it is {info['state']}"

    async def _end(
        self, name: str, creating: asyncio.Task[Json | str], tried: asyncio.Event
    ) -> None:
        """End the child, if there may be one: now, or else as soon as a daemon will. `tried` is
        set once it is gone, or the first attempt has failed."""
        made = await creating
        while not await self._is_destroyed(name, made):
            if isinstance(made, dict) and not tried.is_set():
                with suppress(Unanswered):  # it may be gone
                    async with Endpoint(made, self._core.spec.ring_bytes) as endpoint:
                        await endpoint.cancel()
            tried.set()
            await asyncio.sleep(bounds.SUBAGENT_RETRY_S)
        tried.set()

    async def _is_destroyed(self, name: str, made: Json | str) -> bool:
        """By its name, where there is no answer: a dying daemon may have made it all the same."""
        params = {"session_id": made["session_id"] if isinstance(made, dict) else name}
        try:
            await self._call("session.destroy", params, bounds.SUBAGENT_DESTROY_S)
        except NoDaemon:
            return False
        except SidecarError as error:
            return error.code == "session_not_found"
        return True

    async def _call(self, method: str, params: Json, within_s: float) -> Any:
        return await call(self._core.spec.control_socket, method, params, within_s)


def child_name(description: str) -> str:
    """A session's name that nobody else has."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", description).strip("-")[:40]
    return f"{words or 'task'}-{uuid.uuid4().hex[:8]}"


def child_params(core: SessionCore, run: Run, name: str, rejected: Sequence[Rule]) -> Json:
    """Of `session.create`: what the session has, at most as much as it has left. Its variables go
    over the socket, as they came."""
    spec = core.spec
    params: Json = {
        "parent": spec.session_id,
        "cwd": str(spec.cwd),
        "name": name,
        "model": spec.provider.model,
        "mode": core.mode,
        "deny": [str(rule) for rule in (*spec.deny, *rejected)],
        "max_turns": spec.max_turns - run.turns,
        "max_tokens": spec.max_tokens,
        "mcp_servers": spec.mcp_servers,
        "env": {**spec.tool_env, **spec.provider.to_env()},
        "limits": left(spec.budget, core.usage),
        "ring_bytes": spec.ring_bytes,
    }
    return params if spec.system is None else {**params, "system": spec.system}


def told(result: Json | str, who: Json) -> ToolResult:
    """What the model and clients learn of a finished task."""
    if isinstance(result, str):
        return ToolResult(f"The subagent did not finish: {result}.", True, {"subagent": who})
    text = result["final_text"]
    counts = ("stop_reason", "turns", "tool_calls", "usage")
    meta = {"subagent": {**who, **{name: result[name] for name in counts}}}
    if result["stop_reason"] == "final_answer":
        return ToolResult(text or "(the subagent said nothing)", meta=meta)
    why = result["stop_reason"]
    if result["error"]:
        why += f": {result['error']['message']}"
    last = f" The last it said:\n{text}" if text else ""
    return ToolResult(f"The subagent did not finish: {why}.{last}", True, meta)
