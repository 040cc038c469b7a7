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
from typing import Any

from aiohttp import web

from session_worker import prctl
from session_worker.conversation import Conversation
from session_worker.core import SessionCore
from session_worker.demo_model import serve_unix
from session_worker.event_log import EventLog
from session_worker.http.app import build_app
from session_worker.loop import Agent, serve_prompts
from session_worker.model import Model
from session_worker.permissions import ASKING_MODES, NOTICE
from session_worker.prompt import system_prompt
from session_worker.reporter import Reporter
from session_worker.spec import SessionSpec
from session_worker.tools.toolbox import Toolbox
from session_worker.transcript import Transcript, history, read
from session_worker.worker_start import take_over
from sidecar.protocol import bounds
from sidecar.protocol.framing import LineSplitter


def run_worker(link: socket.socket) -> None:
    """Wait for a session, then serve it until SIGTERM."""
    listener = take_over(link)
    wire = _read_specification(link)
    prctl.die_with_parent(wire["shim_pid"])
    prctl.hide_memory()
    prctl.set_name("sidecar-worker")
    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s")
    asyncio.run(_serve(SessionSpec.from_wire(wire), link, listener))


def _read_specification(link: socket.socket) -> dict[str, Any]:
    splitter = LineSplitter(bounds.SHIM_LINE_BYTES)
    while chunk := link.recv(64 * bounds.KIB):
        if lines := splitter.feed(chunk):
            return json.loads(lines[0])
    raise SystemExit(0)  # the shim left before it had a session


async def _serve(spec: SessionSpec, link: socket.socket, listener: socket.socket) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with AsyncExitStack() as stack:
        transcript = Transcript.open(spec.places["transcript"])
        stack.callback(transcript.close)
        log = EventLog(spec.places["ring"], spec.ring_bytes)
        stack.callback(log.close)
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
        if spec.provider.demo:
            await stack.enter_async_context(serve_unix(spec.places["model"]))
            model = Model.on_socket(spec.provider, spec.places["model"])
        else:
            model = Model(spec.provider)
        stack.push_async_callback(model.close)
        agent = Agent(
            spec,
            system_prompt(spec),
            core,
            Conversation(transcript, history(read(spec.places["transcript"]))),
            model,
            Toolbox(core),
        )
        runner = web.AppRunner(
            build_app(core),
            access_log=None,
            handle_signals=False,
            shutdown_timeout=bounds.LAST_ANSWERS_S,
        )
        stack.push_async_callback(runner.cleanup)
        await runner.setup()
        listener.setblocking(False)
        await web.SockSite(runner, listener).start()
        core.announce()
        async with asyncio.TaskGroup() as group:
            prompts = group.create_task(serve_prompts(agent))
            await stopping.wait()
            await core.stop()
            log.end()
            prompts.cancel()


def _tell_what_to_know(core: SessionCore) -> None:
    spec = core.spec
    if spec.provider.demo:
        core.notice("info", "Demo model: a script, not an AI; set ANTHROPIC_API_KEY for one.")
    if spec.mode in ASKING_MODES:
        core.notice("warning", NOTICE)
    if core.transcript.torn_bytes:
        cut = core.transcript.torn_bytes
        core.notice("warning", f"{cut} bytes of an unfinished record were set aside.")
