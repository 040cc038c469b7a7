"""The session's own routes: its events, its transcript, and the end of its run."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import aclosing, nullcontext, suppress

from aiohttp import web
from aiohttp.hdrs import LAST_EVENT_ID
from pydantic import BaseModel, Field

from session_worker import transcript
from session_worker.http.body import parse_body
from session_worker.http.cursor import parse_cursor
from session_worker.http.errors import HttpError
from session_worker.http.keys import CORE
from session_worker.http.sse import KEEP_ALIVE, EventStream, follow, sse
from session_worker.http.submit import submit
from session_worker.permission_request import PermissionRequest
from sidecar.protocol import bounds, events, markdown
from sidecar.protocol.ring import CursorInFuture, Gap, Record

_TYPE = re.compile(rb'"type":"([a-z_]+)"')


class CompactRequest(BaseModel):
    focus: str = Field(default="", max_length=bounds.COMPACTION_FOCUS_CHARS)


def add_routes(router: web.UrlDispatcher) -> None:
    # a HEAD would be sent the stream all the same, and wait for its end
    router.add_get("/sessions/{session_id}/events", _events, allow_head=False)
    router.add_get("/sessions/{session_id}/transcript", _transcript)
    router.add_get("/sessions/{session_id}/context", _context)
    router.add_post("/sessions/{session_id}/cancel", _cancel)
    router.add_post("/sessions/{session_id}/compact", _compact)
    router.add_get("/sessions/{session_id}", _show)
    router.add_get("/session/{session_id}", _show)  # the OpenAPI file's spelling (acp.md §4)


def require_session(request: web.Request) -> None:
    """404 unless the path names this worker's session or an alias of it."""
    named = request.match_info["session_id"]
    core = request.app[CORE]
    if named != core.spec.session_id and named not in core.aliases:
        raise HttpError(404, "not_found", f"session {named} is not here")


async def _show(request: web.Request) -> web.Response:
    require_session(request)
    return web.json_response({"id": request.match_info["session_id"], "history": [], "state": None})


async def _events(request: web.Request) -> web.StreamResponse:
    require_session(request)
    core, after = request.app[CORE], _cursor(request)
    log = core.log
    try:
        reader = log.reader_after(after)
    except CursorInFuture as error:
        raise HttpError(400, "invalid_input", str(error)) from None
    to_the_end = request.query.get("follow") == "0"
    attending = nullcontext() if to_the_end else core.attendance.attached()
    stream = await EventStream.open(request)
    async with aclosing(follow(log, reader, after=after, to_the_end=to_the_end)) as batches:
        # a client that loses its stream comes back with its cursor
        with suppress(ConnectionError), attending:
            async for batch in batches:
                await stream.send(_render(batch, core.requests.pending()))
    return await stream.end()


def _cursor(request: web.Request) -> int:
    return parse_cursor(request.headers.get(LAST_EVENT_ID) or request.query.get("after") or "0")


def _render(batch: list[Record | Gap], pending: list[PermissionRequest]) -> bytes:
    return b"".join(_render_one(item, pending) for item in batch) if batch else KEEP_ALIVE


def _render_one(item: Record | Gap, pending: list[PermissionRequest]) -> bytes:
    if isinstance(item, Gap):
        gap = {"from": item.from_seq, "to": item.to_seq}
        lost = [r for r in pending if item.from_seq <= r.seq <= item.to_seq]
        return sse(json.dumps(gap).encode(), event="gap", number=item.to_seq) + b"".join(
            # what still waits for an answer is told again; without a number: the cursor is past it
            sse(json.dumps(r.envelope()).encode(), event=events.PERMISSION_REQUESTED)
            for r in lost
        )
    kind = _TYPE.search(item.payload)  # the envelope's own type stands before its data
    return sse(item.payload, event=kind[1].decode() if kind else None, number=item.seq)


async def _transcript(request: web.Request) -> web.StreamResponse:
    require_session(request)
    core = request.app[CORE]
    wanted = request.query.get("format", "json")
    if wanted not in _FORMATS:
        raise HttpError(
            400, "invalid_input", f"format is json, jsonl or markdown, not {wanted[:40]!r}"
        )
    content_type, render = _FORMATS[wanted]
    records = transcript.read(core.spec.places["transcript"])
    # in a thread: a long one takes seconds, which the agent and its streams would stand still
    text = await asyncio.to_thread(render, core.spec.session_id, records)
    return web.Response(text=text, content_type=content_type)


def _as_json(session_id: str, records: Iterator[transcript.Record]) -> str:
    return json.dumps({"session_id": session_id, "records": list(records)})


def _as_lines(session_id: str, records: Iterator[transcript.Record]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def _as_markdown(session_id: str, records: Iterator[transcript.Record]) -> str:
    return markdown.render(records)


_FORMATS = {
    "json": ("application/json", _as_json),
    "jsonl": ("application/jsonl", _as_lines),
    "markdown": ("text/markdown", _as_markdown),
}


async def _context(request: web.Request) -> web.Response:
    """One record per model call (design §8), and what the next call will hold."""
    require_session(request)
    core = request.app[CORE]
    path = core.spec.places["transcript"]
    calls = await asyncio.to_thread(
        lambda: [record for record in transcript.read(path) if record["kind"] == "api_call"]
    )
    return web.json_response(
        {
            "session_id": core.spec.session_id,
            "model": core.spec.provider.model,
            "context_tokens": core.context_tokens,
            "context_window": core.spec.provider.facts.context_window,
            "kept_out": sum(call.get("kept_out", 0) for call in calls),
            "calls": calls,
        }
    )


async def _compact(request: web.Request) -> web.Response:
    """Compacts the conversation in its turn; answers with the result once that is over."""
    require_session(request)
    wanted = await parse_body(request, CompactRequest, if_empty=b"{}")
    run = submit(request.app[CORE], "", compact=wanted.focus)
    await run.done.wait()
    assert run.result is not None, "a run that is done has its result"
    return web.json_response({"run_id": run.run_id, "result": run.result.to_wire()})


async def _cancel(request: web.Request) -> web.Response:
    """Ends the running run and those that wait; answers when nothing of them is left."""
    require_session(request)
    core = request.app[CORE]
    try:
        run = await core.cancel_all()
    except TimeoutError:
        raise HttpError(504, "server_error", "the run does not end; destroy the session") from None
    return web.json_response({"run_id": run and run.run_id, "state": core.state})
