"""The worker: one session's agent loop behind one HTTP endpoint.

Reached by fork from the shim, or by exec through `__main__`; the session comes over the link to
the shim (`worker_start.hand_over`, then one line).
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from aiohttp import web

from session_worker.command_sandbox import sandboxed
from session_worker.core import SessionCore
from session_worker.event_log import EventLog
from session_worker.http.app import build_app
from session_worker.http.door import Door
from session_worker.limits import Limits, apply_rlimits
from session_worker.model import Model
from session_worker.reporter import Reporter
from session_worker.restore import next_incarnation, restore
from session_worker.settings import chosen
from session_worker.spec import SessionSpec
from session_worker.transcript import Transcript, read
from session_worker.work import work
from session_worker.worker_start import take_over
from sidecar.protocol import bounds, cgroup, events, prctl
from sidecar.protocol.framing import LineSplitter

_APP = build_app()
"""Of this process's one session; made at import, which for a forked worker is before the fork."""


def run_worker(link: socket.socket) -> None:
    """Wait for a session, then serve it until SIGTERM."""
    listeners = take_over(link)
    wire = read_specification(link)
    prctl.die_with_parent(wire["shim_pid"])
    prctl.hide_memory()
    prctl.set_name("sidecar-worker")
    apply_rlimits(Limits.from_wire(wire["limits"]))
    set_up_log()
    asyncio.run(serve(SessionSpec.from_wire(wire), _APP, link, listeners))


def set_up_log() -> None:
    """To stderr, which is worker.log; what was set up before the fork stays."""
    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s")


def read_specification(link: socket.socket) -> dict[str, Any]:
    """Blocks until the shim sends it. Raises SystemExit when the shim leaves instead."""
    splitter = LineSplitter(bounds.SHIM_LINE_BYTES)
    while chunk := link.recv(64 * bounds.KIB):
        if lines := splitter.feed(chunk):
            return json.loads(lines[0])
    raise SystemExit(0)  # the shim left before it had a session


async def serve(
    spec: SessionSpec, app: web.Application, link: socket.socket, listeners: list[socket.socket]
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    in_group = spec.cgroup and loop.run_in_executor(None, cgroup.enter, spec.cgroup)
    async with AsyncExitStack() as stack:
        transcript = Transcript.open(spec.places["transcript"])
        stack.callback(transcript.close)
        records = list(read(spec.places["transcript"]))
        spec = chosen(spec, records)
        spec = replace(spec, incarnation=max(spec.incarnation, next_incarnation(records)))
        log = EventLog(spec.places["ring"], spec.ring_bytes)
        stack.callback(log.close)
        transcript.newest_event = lambda: log.last_seq
        core = SessionCore(spec, log, transcript, Reporter(link))
        transcript.append(
            "session",
            sync=True,
            session_id=spec.session_id,
            incarnation=spec.incarnation,
            cwd=str(spec.cwd),
            model=spec.provider.model,
            mode=spec.mode,
        )
        _tell_what_to_know(core)
        launcher = sandboxed(core)
        stack.callback(launcher.close)
        betas = spec.ptc.betas if spec.ptc else ()
        if spec.provider.demo:
            model = Model.demo(spec.provider, spec.places["model"], betas)
        else:
            model = Model(spec.provider, betas=betas)
        stack.push_async_callback(model.close)
        restored = restore(records)
        core.take_over(restored)
        if in_group:
            await in_group  # before anybody can have us start something
        door = await Door.open(core, app, listeners)
        stack.push_async_callback(door.close)
        core.announce()
        async with asyncio.TaskGroup() as group:
            prompts = group.create_task(work(core, model, launcher.start, records, restored.cwd))
            del records  # what was compacted need not stay in memory
            idle = group.create_task(door.wait_idle(spec.idle_timeout_s))
            stop = group.create_task(stopping.wait())
            await asyncio.wait((idle, stop), return_when=asyncio.FIRST_COMPLETED)
            if stop.done():
                await core.stop()
            else:
                core.set_state("sleeping")
            log.end()
            for task in (prompts, idle, stop):
                task.cancel()


def _tell_what_to_know(core: SessionCore) -> None:
    spec = core.spec
    if spec.restart_reason is not None:
        restart = {"incarnation": spec.incarnation, "reason": spec.restart_reason}
        core.log.emit(events.RESTARTED, restart)
    if core.transcript.torn_bytes:
        cut = core.transcript.torn_bytes
        core.notice("warning", f"{cut} bytes of an unfinished record were set aside.")
    if spec.incarnation > 1:
        return
    if spec.provider.demo:
        core.notice("info", "Demo model: a script, not an AI; set ANTHROPIC_API_KEY for one.")
