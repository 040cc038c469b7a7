"""One session, as a program holds it: prompts, events, transcript, end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from client import endpoint
from client.errors import ConnectionLost, EndpointRefusal, Unreachable
from sidecar.protocol import bounds
from sidecar.protocol.events import GAP, RESTARTED, RUN_FINISHED, Envelope
from sidecar.protocol.methods import ENDED_STATES
from sidecar.protocol.session_info import SessionInfo

if TYPE_CHECKING:
    from client.api import Sidecar

RECONNECT_PAUSE_S = 0.2
"""Between two attempts to reach an endpoint whose worker is being restarted."""


class Session:
    """`info` is what was last known of it; `status()` renews it.

    Prompts, cancels and events go to the session's own endpoint and survive the daemon.
    """

    def __init__(self, sidecar: Sidecar, info: SessionInfo) -> None:
        self.info = info
        self._sidecar = sidecar

    @property
    def id(self) -> str:
        return self.info["session_id"]

    async def status(self) -> dict[str, Any]:
        """SessionInfo with `resources`, `ring` and `usage`."""
        status = await self._sidecar.status(self.id)
        self.info = cast(SessionInfo, status)
        return status

    async def destroy(
        self, *, grace_s: float = bounds.DESTROY_GRACE_DEFAULT_S, purge: bool = False
    ) -> SessionInfo:
        """End it and its whole process tree; with `purge` its files go too."""
        self.info = await self._sidecar.destroy(self.id, grace_s=grace_s, purge=purge)
        return self.info

    async def start(self, text: str, *, steer: bool = False) -> dict[str, Any]:
        """Hand in a prompt and wait for its acceptance only: the Run `{run_id, status, …}`.

        With `steer` it does not wait for the end of the run under way, but goes along with the
        next tool results of that run and shares its result; without such a run it is like any.
        """
        body = endpoint.run_request(text, "async", steer=steer)
        return json.loads(await endpoint.fetch(self.info, "POST", "/runs", body))

    async def prompt(self, text: str, *, steer: bool = False) -> dict[str, Any]:
        """Hand in a prompt, as `start` does, and wait for its AgentLoopResult, also as long as
        somebody else takes to `answer` what the run asks."""
        result: dict[str, Any] = {}
        async for event in self.stream(text, steer=steer):
            result = event["data"]
        return result

    async def stream(self, text: str, *, steer: bool = False) -> AsyncGenerator[Envelope]:
        """Hand in a prompt, as `start` does, and follow its run; the last event is its
        `run_finished`. With `steer` the events of the run it goes along with are among them, from
        there on. A `retry` that says `discard` takes back what its unfinished answer had said. What
        a `permission_requested` asks waits for whoever is first to `answer` it.

        Raises `ConnectionLost` when the last event can no longer come.
        """
        cursor = (await self.status())["ring"]["last_seq"]
        run_id: str = (await self.start(text, steer=steer))["run_id"]
        over_by, begun = None, False
        async with aclosing(self.events(cursor)) as events:
            async for event in events:
                kind, own = event["type"], event["run_id"] == run_id
                begun = begun or own
                shared = steer and begun and event["run_id"] and kind != RUN_FINISHED
                if own or shared or kind in (GAP, RESTARTED):
                    yield event
                    if own and kind == RUN_FINISHED:
                        return
                if kind in (GAP, RESTARTED):
                    over_by = await self._over_by(run_id)
                if over_by is not None and event["seq"] >= over_by:
                    break
        raise ConnectionLost(
            f"the result of run {run_id} is lost to this stream",
            f"sidecarctl transcript {self.id}",
        )

    async def _over_by(self, run_id: str) -> int | None:
        """The number by which a run's end has been told, if it has ended or never will."""
        try:
            run = json.loads(await endpoint.fetch(self.info, "GET", f"/runs/{run_id}"))
            if run["result"] is None:
                return None
        except (EndpointRefusal, Unreachable):
            pass  # its worker is gone, and one started since then knows nothing of it
        return (await self.status())["ring"]["last_seq"]

    async def events(self, after: int = 0) -> AsyncGenerator[Envelope]:
        """Every event after the cursor `after`, live, until the session has ended.

        Comes back with its cursor after a dropped stream or a restarted worker. What fell out
        of the ring shows as one event of type `gap`.
        """
        cursor, failing_since = after, None
        while True:
            try:
                async with aclosing(endpoint.events(self.info, cursor)) as stream:
                    async for event in stream:
                        # behind a gap a question that waits is told again, with its own number
                        cursor, failing_since = max(cursor, event["seq"]), None
                        yield event
            except (Unreachable, ConnectionLost):
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > bounds.SESSION_START_S:
                    raise
            if await self._has_ended():
                break
            await asyncio.sleep(RECONNECT_PAUSE_S)
        async for event in self.recorded(cursor):
            yield event

    async def recorded(self, after: int = 0) -> AsyncGenerator[Envelope]:
        """What the ring holds after `after`, also of an ended session; wakes and awaits nobody."""
        cursor = after
        while True:
            output = await self._sidecar.output(self.id, after=cursor)
            if output["gap"]:
                yield endpoint.gap(output["gap"])
            for event in output["events"]:
                cursor = event["seq"]
                yield event
            if not output["events"]:
                return

    async def _has_ended(self) -> bool:
        try:
            return (await self.status())["state"] in ENDED_STATES
        except (Unreachable, ConnectionLost):
            return False  # a session lives on without its daemon

    async def cancel(self) -> None:
        """End the run, if there is one; returns when nothing of it is left."""
        await endpoint.fetch(self.info, "POST", f"/sessions/{self.id}/cancel", {})

    async def permissions(self) -> list[dict[str, Any]]:
        """The questions that wait for an answer, oldest first, each as the data of its
        `permission_requested` event."""
        path = f"/sessions/{self.id}/permissions"
        return json.loads(await endpoint.fetch(self.info, "GET", path))["pending"]

    async def answer(self, request_id: str, option_id: str | None, reason: str = "") -> None:
        """Answer a question with the id or the kind of one of its options; None cancels its run.
        The model reads the reason of a reject.

        The first answer of any client counts; after it this is an `EndpointRefusal` of status 403.
        """
        path = f"/sessions/{self.id}/permissions/{quote(request_id, safe='')}"
        body = {"option_id": option_id, "reason": reason}
        await endpoint.fetch(self.info, "POST", path, body)

    async def context(self) -> dict[str, Any]:
        """What fills the model's context: `{session_id, model, context_tokens, context_window,
        calls}`, one record of tokens and cost for each model call, the discarded ones too."""
        return json.loads(await endpoint.fetch(self.info, "GET", f"/sessions/{self.id}/context"))

    async def compact(self, focus: str = "") -> dict[str, Any]:
        """Have a summary stand for all but the newest messages, with attention to `focus`, after
        the runs that were accepted before: `{run_id, result}`. What keeps it from happening is
        the result's `error`."""
        path, body = f"/sessions/{self.id}/compact", {"focus": focus}
        return json.loads(await endpoint.fetch(self.info, "POST", path, body, silence_s=None))

    async def transcript(self, format: str = "json") -> str:
        """The durable record as `json`, `jsonl` or `markdown` text."""
        path = f"/sessions/{self.id}/transcript?format={format}"
        return (await endpoint.fetch(self.info, "GET", path)).decode()
