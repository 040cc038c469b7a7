"""One session as the daemon sees it: its record, the shim's last word, and its state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from sidecar.cpu_mark import CpuMark
from sidecar.identity import Identity, identify, wait_ended
from sidecar.protocol import bounds
from sidecar.protocol.events import now_iso
from sidecar.protocol.files import read_json
from sidecar.protocol.paths import SessionPlaces
from sidecar.protocol.session_info import SessionInfo
from sidecar.record import Record
from sidecar.shim_link import ShimLink, Word
from sidecar.states import LIVE, IllegalTransition, advance

log = logging.getLogger(__name__)

_NO_WORD: Word = {
    "shim_pid": None,
    "pid": None,
    "incarnation": 0,
    "restarts": 0,
    "started_at": None,
    "exit": None,
    "tcp": None,
}


class Session:
    """`on_change` is called after each change; `state` moves only along `states.NEXT`."""

    def __init__(
        self, record: Record, places: SessionPlaces, on_change: Callable[[Session], None]
    ) -> None:
        self.record = record
        self.places = places
        self.state = "starting"
        self.word: Word = _NO_WORD
        self.worker: Identity | None = None
        """The worker by the last word."""
        self.cpu_mark = CpuMark()
        self._on_change = on_change
        self._link: ShimLink | None = None
        self._changed = asyncio.Condition()

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def linked(self) -> bool:
        """The shim can be told something."""
        return self._link is not None

    # --- following the shim ----------------------------------------------------------------

    async def follow(self, link: ShimLink | None = None) -> bool:
        """Take the shim's words until its last, through `link` first. False if it ended without.

        A lost link to a living shim is made again: not answering in time is no proof of death.
        After the last word the session may be resumed at any moment, so from then on nothing here
        may look at its state or its shim: they may be the next one's.
        """
        shim = self.record.shim
        assert shim is not None, "a session is followed once its shim is recorded"
        while True:
            self._link = current = link or await self._connect()
            link = None
            if current is not None:
                try:
                    async for word in current.words():
                        if word["shim_pid"] != shim.pid:
                            break  # somebody else answers on our socket
                        if word["exit"] is not None:
                            self._link = None
                            await self._take(word)
                            return True
                        await self._take(word)
                    self._link = None
                finally:
                    current.close()
            if await self.wait_process_gone(bounds.SHIM_RETRY_S):
                return False

    async def _connect(self) -> ShimLink | None:
        try:
            return await ShimLink.to(self.places.control)
        except (OSError, TimeoutError):
            return None

    async def settle(self) -> None:
        """The shim is gone: its exit record says what the session became, else it is lost."""
        self.places.unlink_sockets()  # a shim that was killed could not
        try:
            await self._take(read_json(self.places.exit)["word"])
        except (OSError, ValueError, KeyError):
            await self._become("lost", self.word | {"pid": None, "run": None, "tcp": None})

    async def begin_again(self) -> None:
        """Resumed: no process yet, and what was known of the session stays known."""
        gone = {key: _NO_WORD[key] for key in ("shim_pid", "pid", "started_at", "exit", "tcp")}
        await self._become("starting", self.word | gone)

    async def close_as_ended(self) -> None:
        """A destroyed session is `exited`, whatever ended it first."""
        if self.state != "exited":
            gone = {"code": None, "signal": None, "reason": self.state, "at": now_iso()}
            await self._become("exited", self.word | {"exit": self.word["exit"] or gone})

    async def _take(self, word: Word) -> None:
        await self._become(word["state"], word)

    async def _become(self, state: str, word: Word) -> None:
        try:
            self.state = advance(self.state, state)
        except IllegalTransition as error:
            log.warning("session %s: %s; ignored", self.record.session_id, error)
            return
        self.word = word
        if word["pid"] != (self.worker and self.worker.pid):
            self.worker = _identity(word["pid"])
        async with self._changed:
            self._changed.notify_all()
        self._on_change(self)

    # --- acting on it ----------------------------------------------------------------------

    async def tell(self, operation: dict[str, Any]) -> None:
        """Send the shim an operation. Raises OSError when there is no link to it."""
        if self._link is None:
            raise ConnectionError("no link to the session's shim")
        await self._link.send(operation)

    async def wait_for(self, condition: Callable[[Session], bool], timeout_s: float) -> bool:
        """False if `condition` did not come true within `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: condition(self))
        except TimeoutError:
            return False
        return True

    async def wait_process_gone(self, timeout_s: float) -> bool:
        """True once the shim's process has ended."""
        if self.record.shim is None:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await wait_ended(self.record.shim)
        except TimeoutError:
            return False
        return True

    # --- showing it ------------------------------------------------------------------------

    def info(self) -> SessionInfo:
        spec, word = self.record.spec, self.word
        tcp: dict[str, str] = word.get("tcp") or {}
        return {
            "session_id": self.record.session_id,
            "name": self.record.name,
            "parent": self.record.parent,
            "state": self.state,
            "wanted": self.record.wanted,
            "cwd": spec["cwd"],
            "model": word.get("model") or spec.get("model") or "",
            "mode": word.get("mode") or spec["mode"],
            "pid": word["pid"],
            "shim_pid": word["shim_pid"] if self.live else None,
            "incarnation": word["incarnation"],
            "restarts": word["restarts"],
            "created_at": self.record.created_at,
            "started_at": word["started_at"],
            "last_active_at": word.get("last_active_at") or self.record.created_at,
            "endpoint": {
                "socket": str(self.places.endpoint),
                "url": tcp.get("url"),
                "token": tcp.get("token"),
            },
            "run": word.get("run"),
            "limits": spec["limits"],
            "last_result": word.get("last_result"),
            "exit": word["exit"],
        }

    def info_for_many(self) -> SessionInfo:
        """`info` without the token, for lists and notifications: they are printed and logged."""
        info = self.info()
        return {**info, "endpoint": {**info["endpoint"], "token": None}}


def _identity(pid: int | None) -> Identity | None:
    try:
        return None if pid is None else identify(pid)
    except ProcessLookupError:
        return None
