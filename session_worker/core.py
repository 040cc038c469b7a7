"""The session core: prompts in, runs out, one state. Both protocols translate only this."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from session_worker import commands, settings, updates
from session_worker.attendance import Attendance
from session_worker.blocks import Block
from session_worker.event_log import EventLog
from session_worker.mcp_servers.servers import Servers
from session_worker.permission_requests import PermissionRequests
from session_worker.prices import cost_usd
from session_worker.project.skills import Skill
from session_worker.reporter import Reporter
from session_worker.restore import CANCEL_ASKED, SUBAGENT_CALL, Restored
from session_worker.result import AgentLoopResult, Tokens, Usage
from session_worker.run import Run
from session_worker.spec import SessionSpec
from session_worker.transcript import Transcript, TranscriptFull
from session_worker.turn import StopReason
from sidecar.protocol import bounds, events
from sidecar.protocol.events import now_iso
from sidecar.protocol.methods import PERMISSION_MODES
from sidecar.protocol.modes import stricter


class QueueFull(Exception):
    """`PROMPT_QUEUE` prompts already wait."""


class Stopping(Exception):
    """The worker is leaving and takes no more prompts."""


class SessionCore:
    """Accepts, orders, cancels and remembers runs. The loop executes them (`loop.py`)."""

    def __init__(
        self, spec: SessionSpec, log: EventLog, transcript: Transcript, reporter: Reporter
    ) -> None:
        self.spec = spec
        self.log = log
        self.transcript = transcript
        self.usage = Usage()
        self.aliases: set[str] = set()
        """Ids that ACP-R clients made up for this session (design §5)."""
        self.state = "idle"
        self.current: Run | None = None
        self.attendance = Attendance()
        self.requests = PermissionRequests(log, self.attendance, spec.permissions.headless_after_s)
        self.requests.on_change = self._on_question
        self._reporter = reporter
        self._waiting: deque[Run] = deque()
        self._runs: dict[str, Run] = {}
        self._work = asyncio.Event()
        self.has_run = asyncio.Event()
        """Set once a run has begun in this worker."""
        self.stopping = False
        """Told to end: no prompt is taken any more."""
        self.mcp_servers: Servers | None = None
        """Set once the session has looked for them; None if it has none."""
        self.tools_version = 0
        """Grows when MCP servers offer others; the next prompt is answered with those."""
        self.mode = spec.mode
        self._mode_chosen = asyncio.Event()
        self.commands = commands.offered(())
        """The newest `available_commands_update`."""
        self.visited = asyncio.Event()
        """Set once a client has come that shows people what they can type."""
        self.background = 0
        """Jobs that run while no run does: as long as there are any, the session does not sleep."""
        self.context_tokens = 0
        """What the next call will hold at least."""
        self._last_result: dict[str, Any] | None = None

    # --- for the protocols -----------------------------------------------------------------

    def submit(
        self,
        prompt: str,
        *,
        content: list[Block] | None = None,
        steer: bool = False,
        compact: str | None = None,
        command: bool = False,
    ) -> Run:
        """Accept a prompt, durably; it runs after those before it, or while one runs with `steer`.
        `content` is all of it, where `prompt` is only its text. With `compact` it is none, but the
        wish for a compaction, in its turn. With `command` it may be a skill's name and arguments.

        Raises `QueueFull`, `Stopping`, `TranscriptFull`.
        """
        if self.stopping:
            raise Stopping
        if len(self._waiting) >= bounds.PROMPT_QUEUE:
            raise QueueFull
        run = Run(
            prompt,
            first_seq=self.log.last_seq,
            steer=steer,
            content=content,
            compact=compact,
            command=command,
        )
        kind: dict[str, Any] = {"steer": True} if steer else {}
        kind |= {} if compact is None else {"compact": compact}
        kind |= {} if content is None else {"content": content}
        kind |= {"command": True} if command else {}
        self.transcript.append("run_started", sync=True, run_id=run.run_id, prompt=prompt, **kind)
        self._waiting.append(run)
        self._remember(run)
        self._work.set()
        return run

    def find(self, run_id: str) -> Run | None:
        return self._runs.get(run_id)

    def ask_to_cancel(self, run: Run) -> None:
        """Begin to end `run`, or the one it went along with; a waiting one is over at once."""
        run = run.host or run
        with suppress(TranscriptFull):
            self.transcript.append("note", sync=True, run_id=run.run_id, note=CANCEL_ASKED)
        if run in self._waiting:
            self._waiting.remove(run)
            self.finish(run, AgentLoopResult(StopReason.CANCELLED, 0, 0, "", None))
        elif run.task is not None and not run.cancel_asked:
            run.cancel_asked = True
            run.task.cancel()

    async def cancel_all(self) -> Run | None:
        """End the running run and all that wait; on return nothing of them is left.

        Answers the run that was under way, if any. Raises TimeoutError after `CANCEL_S`.
        """
        current = self.current
        for run in [*self._waiting, *([current] if current else [])]:
            self.ask_to_cancel(run)
        if current is not None:
            async with asyncio.timeout(bounds.CANCEL_S):
                await current.done.wait()
        return current

    async def stop(self) -> None:
        """Refuse new prompts and end what is under way, within `WORKER_STOP_S`."""
        self.stopping = True
        async with asyncio.timeout(bounds.WORKER_STOP_S):
            await self.cancel_all()

    def take_over(self, restored: Restored) -> None:
        """Continue what an earlier worker of this session left; call once, before serving."""
        self.usage, self.context_tokens = restored.usage, restored.context_tokens
        self._last_result = restored.last_result and restored.last_result.to_wire()
        limited, prices = self.spec.budget.cost_usd is not None, self.spec.prices
        if limited and cost_usd({"input_tokens": 1}, self.spec.provider, prices) is None:
            self.usage.cost_usd = None  # before the first call, which would have no price
        for run in restored.runs:
            self._remember(run)
        for run in restored.runs:
            if run.result is not None:
                continue
            if run.host is not None:
                if run.host.result is not None:
                    self.finish(run, run.host.result)
            elif run.cancel_asked:
                cancelled = AgentLoopResult(
                    StopReason.CANCELLED, run.turns, run.tool_calls, "".join(run.output[-1:]), None
                )
                self.finish(run, cancelled)
            else:
                self._waiting.append(run)

    def set_mode(self, mode: str) -> None:
        """From the next call on. Raises ValueError, `TranscriptFull`."""
        if mode not in PERMISSION_MODES:
            raise ValueError(f"mode is one of {', '.join(PERMISSION_MODES)}, not {mode[:40]!r}")
        above = self.spec.parent
        if above is not None and stricter(mode, above.mode) != mode:
            raise ValueError(f"a subagent's mode is at most its parent's, which was {above.mode}")
        self.transcript.append("note", sync=True, note=settings.MODE, mode=mode)
        self.mode = mode
        self._mode_chosen.set()
        self._mode_chosen.clear()
        self._reporter.report(mode=mode)
        self.log.emit(events.UPDATE, updates.current_mode(mode))
        self.log.emit(events.UPDATE, updates.config_options(self.config_options()))

    def set_model(self, model: str) -> None:
        """From the next prompt on. Raises ValueError, `TranscriptFull`."""
        if model not in settings.models(self.spec.provider):
            raise ValueError(f"there is no model {model[:80]!r} to choose here")
        self.transcript.append("note", sync=True, note=settings.MODEL, model=model)
        self.spec = settings.with_model(self.spec, model)
        self._reporter.report(model=model)
        self.log.emit(events.UPDATE, updates.config_options(self.config_options()))

    def config_options(self) -> list[dict[str, Any]]:
        """What of the session can be chosen, as ACP-C shows it (acp.md §2.5)."""
        return settings.config_options(self.mode, self.spec.provider)

    @property
    def busy(self) -> bool:
        """A run is under way or waits."""
        return self.current is not None or bool(self._waiting)

    async def until_stricter_than(self, mode: str) -> None:
        """Returns once the mode is."""
        while stricter(self.mode, mode) == mode:
            await self._mode_chosen.wait()

    # --- for the loop ----------------------------------------------------------------------

    async def wait_for_work(self) -> None:
        """Until a run waits, which stays where it is."""
        while not self._waiting:
            self._work.clear()
            await self._work.wait()

    async def next_run(self) -> Run:
        """The oldest waiting run, made current."""
        await self.wait_for_work()
        run = self._waiting.popleft()
        run.started_at = run.started_at or now_iso()
        self.current = run
        self.has_run.set()
        self.log.emit(events.RUN_STARTED, {"run_id": run.run_id}, run.run_id)
        self.set_state("running")
        return run

    def take_steering(self, host: Run) -> list[Run]:
        """The waiting prompts that do not wait for the end of `host`; they end with it."""
        taken = [run for run in self._waiting if run.steer]
        for run in taken:
            self._waiting.remove(run)
            run.started_at, run.host = now_iso(), host
            self.log.emit(events.RUN_STARTED, {"run_id": run.run_id}, run.run_id)
        return taken

    def finish(self, run: Run, result: AgentLoopResult) -> None:
        """Write down the result, tell everybody, and be idle again."""
        if run.subagents.total_tokens:
            result.usage.merge(run.subagents)
            result.cost_usd = result.usage.cost_usd
        for steering in [r for r in self._runs.values() if r.host is run and r.result is None]:
            steering.output = run.output[-1:]
            self.finish(steering, result)
        wire = result.to_wire()
        try:
            self.transcript.append("run_finished", sync=True, run_id=run.run_id, result=wire)
        except TranscriptFull as error:
            self.notice("error", f"The result of this run was not recorded: {error}")
        run.result, run.finished_at, run.task = result, now_iso(), None
        run.finished_seq = self.log.emit(events.RUN_FINISHED, wire, run.run_id)
        self._last_result = wire
        self._reporter.report(last_result=wire, usage=self._usage())
        if self.current is run:
            self.current = None
            self.set_state("idle")
        run.done.set()

    def report(self, **members: Any) -> None:
        """Tell the daemon, by way of the shim, what is the latest of these."""
        self._reporter.report(**members)

    def notice(self, severity: str, title: str) -> None:
        """Tell every client something; `severity` is info, warning or error."""
        run_id = self.current and self.current.run_id
        self.log.emit(events.NOTICE, {"severity": severity, "title": title}, run_id)

    def offer_commands(self, skills: Iterable[Skill]) -> None:
        """Tell every client what people can type, if that is new."""
        offered = commands.offered(skills)
        if offered != self.commands:
            self.commands = offered
            self.log.emit(events.UPDATE, offered)

    def count_call(
        self, tokens: Tokens, cost_usd: float | None, context_tokens: int | None
    ) -> None:
        """Add one model call to the session's usage; null leaves `context_tokens` as they are."""
        self.usage.add(tokens, cost_usd)
        self.now_holds(self.context_tokens if context_tokens is None else context_tokens)

    def count_subagent(self, run: Run, tokens: Tokens, cost_usd: float | None) -> None:
        """Add one model call of a subagent to what `run` and the session have used."""
        with suppress(TranscriptFull):  # it counts as long as this worker lives
            used: dict[str, Any] = {**asdict(tokens), "cost_usd": cost_usd}
            self.transcript.append("note", run_id=run.run_id, note=SUBAGENT_CALL, **used)
        run.subagents.add(tokens, cost_usd)
        self.usage.add(tokens, cost_usd)
        self._reporter.report(usage=self._usage())

    def now_holds(self, context_tokens: int) -> None:
        """The context has become that large, or that small."""
        self.context_tokens = context_tokens
        self._reporter.report(usage=self._usage())

    def _on_question(self) -> None:
        state = "waiting" if self.requests.pending() else "running"
        if state != self.state:
            self.set_state(state)

    def set_state(self, state: str) -> None:
        self.state = state
        self.log.emit(events.STATE, {"state": state}, self.current and self.current.run_id)
        self._reporter.report(state=state, run=self.run_info(), last_active_at=now_iso())

    def announce(self) -> None:
        """The first word to the shim: up, what it is, and what a shim before it knew."""
        self._reporter.report(
            model=self.spec.provider.model,
            mode=self.mode,
            incarnation=self.spec.incarnation,
            last_result=self._last_result,
            usage=self._usage(),
        )
        self.set_state(self.state)

    def run_info(self) -> dict[str, Any] | None:
        run = self.current
        return None if run is None else {"run_id": run.run_id, "started_at": run.started_at}

    def _usage(self) -> dict[str, Any]:
        return {
            **asdict(self.usage),
            "context_tokens": self.context_tokens,
            "context_window": self.spec.provider.facts.context_window,
        }

    def _remember(self, run: Run) -> None:
        self._runs[run.run_id] = run
        finished = [r for r in self._runs.values() if r.result is not None]
        for old in finished[: max(0, len(self._runs) - bounds.RUNS_KEPT)]:
            del self._runs[old.run_id]
