"""The supervisor, top to bottom: start, adopt, create, destroy, stop.

Everything a client can ask for ends here as one method. Sessions are processes of their own
that need no daemon; this one starts them, watches them and knows what they last said.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sidecar import admission, cgroups, faults, health, orphans, subagents
from sidecar.adopt import Verdict, judge
from sidecar.config import Config
from sidecar.cpu_mark import CpuMark
from sidecar.directory import Directory
from sidecar.forker import Forkers
from sidecar.identity import Identity, is_alive, kill
from sidecar.protocol import VERSION, bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.events import now_iso
from sidecar.protocol.paths import Places, ensure_private_dir
from sidecar.protocol.session_info import SessionInfo
from sidecar.record import Record, set_aside
from sidecar.request import check_create, limits_report
from sidecar.session import Session
from sidecar.shim_link import ShimLink, Word
from sidecar.starting import log_tail, spawn, specification
from sidecar.states import LIVE

log = logging.getLogger(__name__)


class Supervisor:
    """One per daemon. `tasks` is the parent of everything that outlives a request."""

    def __init__(
        self, places: Places, config: Config, tasks: asyncio.TaskGroup, cgroup: str | None
    ) -> None:
        """`cgroup` is the control group delegated to us, below which each session gets its own."""
        self.places = places
        self.sessions = Directory()
        self.stop_asked = asyncio.Event()
        self.on_change: Callable[[Session], None] = lambda _: None
        self.forkers = Forkers(config.spawn)
        self._config = config
        self._cgroup = cgroup
        self._tasks = tasks
        self._began = time.monotonic()
        self._cpu_mark = CpuMark()
        self._draining = False

    # --- the daemon's own life -------------------------------------------------------------

    async def start(self) -> None:
        """Take over what an earlier daemon left."""
        for directory in (self.places.runtime / "s", self.places.state, self.places.sessions):
            ensure_private_dir(directory)
        for directory in sorted(self.places.sessions.iterdir()):
            await self._take_over(directory)
        if ended := self.sessions.ended():
            await self._end_orphans(*ended)
        self._end_orphaned(self.sessions.live())
        self._background(self.forkers.keep_ready())

    async def _take_over(self, directory: Path) -> None:
        places = self.places.session(directory.name)
        try:
            record = Record.load(places)
        except (OSError, ValueError, KeyError, TypeError) as error:
            set_aside(directory, self.places.set_aside, error)
            return
        session = Session(record, places, self._changed)
        match judge(
            wanted=record.wanted,
            spawned=record.shim is not None,
            alive=record.shim is not None and is_alive(record.shim),
            exited=places.exit.exists(),
        ):
            case Verdict.FORGET:
                places.unlink_sockets()
                places.remove()
                return
            case Verdict.ENDED | Verdict.LOST:
                await session.settle()
                if record.wanted == "down":
                    await session.close_as_ended()
            case Verdict.ADOPT:
                self._background(self._follow(session))
            case Verdict.FINISH_STOP:
                self._background(self._follow(session))
                self._background(self._finish_stop(session))
        self.sessions.add(session)

    async def _follow(self, session: Session, link: ShimLink | None = None) -> None:
        """Know what the shim says until it has ended. If that was without a last word, end what
        it left before the session counts as lost, for then it may be started again."""
        if not await session.follow(link):
            await self._end_orphans(session)
            await session.settle()

    async def _end_orphans(self, *ended: Session) -> bool:
        """False if something survived."""
        gone = await orphans.end([s.record for s in ended], self._our_children)
        if not gone:
            log.error("orphans of ended sessions survive SIGKILL")
        return gone

    def _our_children(self) -> set[int]:
        shims = (s.record.shim for s in self.sessions.live())
        return self.forkers.pids() | {shim.pid for shim in shims if shim is not None}

    async def _finish_stop(self, session: Session) -> None:
        await session.wait_for(lambda s: s.word["shim_pid"] is not None, bounds.ADOPT_S)
        with suppress(SidecarError):
            await self._end(session, bounds.DESTROY_GRACE_DEFAULT_S)

    def reconfigure(self, config: Config) -> None:
        """`config` from now on; sessions that live are not touched."""
        self._config = config
        self.forkers.switch(config.spawn)

    async def shutdown(self, *, stop_sessions: bool, drain_s: float) -> None:
        """Refuse new sessions, let runs finish for `drain_s`, end all if asked; then stop."""
        self._draining = True
        until = time.monotonic() + drain_s
        for session in self.sessions.live():
            left = until - time.monotonic()
            if left > 0:
                await session.wait_for(lambda s: s.state not in ("running", "waiting"), left)
        if stop_sessions:
            async with asyncio.TaskGroup() as group:
                for session in self.sessions.live():
                    group.create_task(self.destroy(session, bounds.DESTROY_GRACE_DEFAULT_S))

    # --- sessions --------------------------------------------------------------------------

    async def create(self, params: dict[str, Any], *, for_worker: bool = False) -> SessionInfo:
        """A session whose endpoint answers. A caller that leaves meanwhile leaves it whole. One
        made `for_worker` of its parent ends with that worker."""
        check_create(params)
        parent = self.sessions.find(params["parent"]) if "parent" in params else None
        params = subagents.within(params, parent) if parent else params
        if twin := self.sessions.by_client_id(params.get("client_id")):
            await twin.wait_for(lambda s: s.state != "starting", bounds.SESSION_START_S)
            return twin.info()
        self._admit(parent)
        try:
            session = self._write_down(params, parent.worker if parent and for_worker else None)
        except OSError as error:
            raise SidecarError(
                "start_failed",
                f"the session's record cannot be written: {error}",
                f"is {self.places.state} on a full or read-only disk?",
                stage="record",
            ) from error
        faults.reach("record_written")
        return await self._start_whole(session, params["env"])

    async def resume(self, session: Session, env: dict[str, str]) -> SessionInfo:
        """Bring an ended session up again from its transcript; a live one is up already."""
        if session.live:
            await session.wait_for(lambda s: s.state != "starting", bounds.SESSION_START_S)
            return session.info()
        parent_id = session.record.parent
        self._admit(self.sessions.find(parent_id) if parent_id else None)
        self.sessions.require_free(session.record.name, but=session)
        session.record.wanted = "up"
        session.record.made_by = None  # whoever resumes a subagent wants it for itself
        session.record.cgroup = self._cgroup_of(session.record.session_id)
        session.record.save(session.places)
        session.places.exit.unlink(missing_ok=True)
        await session.begin_again()
        return await self._start_whole(session, env)

    def _admit(self, parent: Session | None) -> None:
        """Raises `SidecarError` when no session may start now, or none of `parent`."""
        if parent is not None:
            subagents.require_room(parent, self.sessions.children(parent))
        if self._draining:
            raise SidecarError("shutting_down", "the daemon is stopping", "try again in a moment")
        live = self.sessions.live()
        starting = sum(session.state == "starting" for session in live)
        if refusal := admission.verdict(
            len(live),
            self._config.max_sessions,
            admission.available_bytes(),
            admission.need_bytes(starting),
        ):
            raise refusal

    def _write_down(self, params: dict[str, Any], made_by: Identity | None) -> Session:
        from uuid import uuid4  # here, for it asks what platform this is

        session_id = str(uuid4())
        name = self.sessions.free_name(params.get("name"), Path(params["cwd"]).name)
        spec = {k: v for k, v in params.items() if k not in ("env", "name")}
        spec.setdefault("mode", self._config.permissions.mode)
        if spec["programmatic_tools"]:  # for good: a session's tools stay as they are
            spec["ptc_profile"] = self._config.ptc_profile
        group = self._cgroup_of(session_id)
        record = Record(session_id, name, spec, now_iso(), cgroup=group, made_by=made_by)
        session = Session(record, self.places.session(session_id), self._changed)
        ensure_private_dir(session.places.directory)
        record.save(session.places)
        self.sessions.add(session)
        return session

    async def _start_whole(self, session: Session, env: dict[str, str]) -> SessionInfo:
        """Start `session`, to its end also when the caller leaves meanwhile."""
        outcome: asyncio.Future[SessionInfo] = asyncio.get_running_loop().create_future()
        self._background(self._start_for(session, env, outcome))
        return await asyncio.shield(outcome)

    async def _start_for(
        self, session: Session, env: dict[str, str], outcome: asyncio.Future[SessionInfo]
    ) -> None:
        """Start `session` whether or not somebody still waits for the outcome."""
        try:
            outcome.set_result(await self._start(session, env))
        except SidecarError as error:
            outcome.set_exception(error)
        except Exception:
            log.exception("session %s did not start", session.record.session_id)
            outcome.set_exception(
                SidecarError("internal_error", "the start failed inside the daemon", "daemon.log")
            )
        outcome.exception()  # the caller may have left: then nobody else looks at it

    async def _start(self, session: Session, env: dict[str, str]) -> SessionInfo:
        stage = "spawn"
        try:
            link = await spawn(session, self.forkers)
            stage = "ready"
            self._background(self._follow(session, link))
            spec = specification(session, env, self._config, self.places)
            await link.send({"op": "start", "spec": spec})
            faults.reach("specification_sent")
            await session.wait_for(lambda s: s.state != "starting", bounds.SESSION_START_S)
            faults.reach("session_ready")
            if session.state in LIVE - {"starting", "stopping"}:
                await health.check(session.places.endpoint, session.record.session_id)
                return session.info()
            reason = "its worker did not become ready"
        except (OSError, TimeoutError, health.Unhealthy, SidecarError) as error:
            reason = f"{type(error).__name__}: {error}"
        await self._give_up(session)
        raise SidecarError(
            "start_failed",
            f"session {session.record.name} did not start: {reason}",
            "see log_tail; nothing of it runs any more",
            stage=stage,
            exit=session.word["exit"],
            log_tail=log_tail(session.places.worker_log),
        )

    async def _give_up(self, session: Session) -> None:
        """A failed start leaves no process and no socket; its record and log stay readable."""
        if session.record.shim is None or not is_alive(session.record.shim):
            await session.settle()
        with suppress(SidecarError):
            await self._end(session, grace_s=0)

    async def destroy(
        self, session: Session, grace_s: float, *, purge: bool = False
    ) -> SessionInfo:
        """End the session and its subagents; answers only once their whole trees are gone.

        Raises `SidecarError` (`timed_out`) if something survived; the records stay.
        """
        session.record.wanted = "down"  # from here on it gets no further subagent
        family = [*self.sessions.children(session), session]
        ends = (self._end(each, grace_s) for each in family if each.live or each is session)
        for failed in await asyncio.gather(*ends, return_exceptions=True):
            if failed is not None:
                raise failed
        for each in family if purge else ():
            self.sessions.remove(each)
            with suppress(FileNotFoundError):  # somebody else purged it meanwhile
                await asyncio.to_thread(each.places.remove)
        return session.info()

    async def _end(self, session: Session, grace_s: float) -> None:
        session.record.wanted = "down"
        try:
            session.record.save(session.places)
        except OSError as error:  # on a full disk, ending a session must still be possible
            log.warning("session %s: %r", session.record.session_id, error)
        faults.reach("end_wanted")
        if session.live:
            await session.wait_for(lambda s: s.linked, bounds.ADOPT_S)
            with suppress(OSError, TimeoutError):
                await session.tell({"op": "stop", "grace_s": grace_s})
                faults.reach("stop_sent")
            budget = grace_s + bounds.KILL_TREE_S + bounds.SHIM_REPLY_S
            if not await session.wait_for(lambda s: not s.live, budget):
                await self._end_without_shim(session)
        await session.wait_process_gone(bounds.SHIM_REPLY_S)
        told = session.state == "failed" and _left_survivors(session.word)
        if told or (session.state == "lost" and not await self._end_orphans(session)):
            raise SidecarError(
                "timed_out",
                f"processes of session {session.record.name} survived SIGKILL",
                "they run as another user or hang in the kernel; see worker.log",
            )
        await session.close_as_ended()

    async def _end_without_shim(self, session: Session) -> None:
        """The last resort against a shim that does not act: its tree becomes ours, and dies."""
        log.error("session %s: its shim does not act and is killed", session.record.session_id)
        if session.record.shim is not None:
            kill(session.record.shim)
        if not await session.wait_for(lambda s: not s.live, bounds.KILL_TREE_S):
            raise SidecarError(
                "timed_out",
                f"session {session.record.name} does not end",
                "try again; its processes are listed in session.status",
            )

    # --- answers ---------------------------------------------------------------------------

    async def status(self, session: Session) -> dict[str, Any]:
        """SessionInfo with `resources`, `ring` and `usage`."""
        from sidecar import resources  # here, for psutil is 9 ms of a daemon's start

        return {
            **session.info(),
            "limits": limits_report(session.record.spec["limits"], session.record.cgroup),
            "resources": await resources.of_tree(session.info()["shim_pid"], session.cpu_mark),
            "ring": resources.of_ring(session.places.ring),
            "usage": session.word.get("usage"),
            "sandbox": session.word.get("sandbox"),
        }

    async def daemon_status(self) -> dict[str, Any]:
        from sidecar import resources

        return {
            "version": VERSION,
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._began, 3),
            "sessions": self.sessions.count_by_state(),
            "zygote": self.forkers.status(),
            "resources": await resources.of_process(os.getpid(), self._cpu_mark),
            "limits": {"max_sessions": self._config.max_sessions},
            "sandbox": asdict(self._config.sandbox),
            "set_aside": self._list_set_aside(),
        }

    def _list_set_aside(self) -> list[str]:
        if not self.places.set_aside.exists():
            return []
        return sorted(str(path) for path in self.places.set_aside.iterdir())

    def rename(self, session: Session, name: str) -> SessionInfo:
        self.sessions.require_free(name, but=session)
        session.record.name = name
        session.record.save(session.places)
        self._changed(session)
        return session.info()

    # --- helpers ---------------------------------------------------------------------------

    def _cgroup_of(self, session_id: str) -> str | None:
        return cgroups.path_of(self._cgroup, session_id) if self._cgroup else None

    def _changed(self, session: Session) -> None:
        self.on_change(session)
        self._end_orphaned(self.sessions.children(session))

    def _end_orphaned(self, sessions: list[Session]) -> None:
        """End those of `sessions` whose parent is gone."""
        for each in sessions:
            if subagents.is_orphan(each, self.sessions.get(each.record.parent)):
                each.record.wanted = "down"
                self._background(self._finish_stop(each))

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` beside the requests. A session is a firewall: its failure ends only it."""

        async def contained() -> None:
            try:
                await work
            except Exception:
                log.exception("a session's task failed")

        self._tasks.create_task(contained())


def _left_survivors(word: Word) -> bool:
    return word["exit"] is not None and word["exit"]["reason"] == "survivors"
