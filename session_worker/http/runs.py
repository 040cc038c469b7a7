"""The Agent Communication Protocol's routes: ping, agents, runs (acp.md §4)."""

from __future__ import annotations

import json
from contextlib import aclosing, suppress
from typing import Any, Literal

from aiohttp import web
from pydantic import BaseModel, Field, ValidationError

from session_worker.core import SessionCore
from session_worker.http.acp_r import AGENT_NAME, MANIFEST, Translator, run_object
from session_worker.http.errors import HttpError
from session_worker.http.keys import CORE
from session_worker.http.sse import KEEP_ALIVE, EventStream, follow, sse
from session_worker.http.submit import submit
from session_worker.run import Run
from sidecar.protocol import bounds
from sidecar.protocol.ring import CursorInFuture, Gap, Record


class _Part(BaseModel):
    content_type: str = "text/plain"
    content: str | None = None
    content_url: str | None = None
    content_encoding: Literal["plain", "base64"] = "plain"


class _Message(BaseModel):
    role: str = Field(pattern=r"^(user|agent(/[a-zA-Z0-9_\-]+)?)$")
    parts: list[_Part]


class _Session(BaseModel):
    id: str = Field(min_length=1, max_length=64)


class _RunRequest(BaseModel):
    agent_name: str
    input: list[_Message]
    mode: Literal["sync", "async", "stream"] = "sync"
    session_id: str | None = Field(default=None, min_length=1, max_length=64)
    session: _Session | None = None
    steer: bool = False
    """Ours: a prompt that does not wait for the end of the run under way."""


def add_routes(router: web.UrlDispatcher) -> None:
    router.add_get("/ping", _ping)
    router.add_get("/agents", _agents)
    router.add_get("/agents/{name}", _agent)
    router.add_post("/runs", _create)
    router.add_get("/runs/{run_id}", _show)
    router.add_get("/runs/{run_id}/events", _events)
    router.add_post("/runs/{run_id}", _resume)
    router.add_post("/runs/{run_id}/cancel", _cancel)


async def _ping(_: web.Request) -> web.Response:
    return web.json_response({})


async def _agents(_: web.Request) -> web.Response:
    return web.json_response({"agents": [MANIFEST]})


async def _agent(request: web.Request) -> web.Response:
    _require_agent(request.match_info["name"])
    return web.json_response(MANIFEST)


async def _create(request: web.Request) -> web.StreamResponse:
    core = request.app[CORE]
    wanted = await _parse(request)
    _require_agent(wanted.agent_name)
    prompt = _prompt(wanted.input)
    session_id = _adopt_session_id(core, wanted)
    run = submit(core, prompt, steer=wanted.steer)
    if wanted.mode == "stream":
        return await _stream(request, core, run, session_id)
    if wanted.mode == "sync":
        await run.done.wait()
    return web.json_response(
        run_object(run, session_id),
        status=200 if wanted.mode == "sync" else 202,
        headers={"Run-ID": run.run_id},
    )


async def _stream(
    request: web.Request, core: SessionCore, run: Run, session_id: str
) -> web.StreamResponse:
    """The run as it happens. A client that leaves ends its stream, never the run."""
    translator = Translator(run, session_id)
    reader = core.log.reader_after(run.first_seq)
    stream = await EventStream.open(request, **{"Run-ID": run.run_id})
    batches = follow(core.log, reader, after=run.first_seq, to_the_end=False)
    async with aclosing(batches):
        with suppress(ConnectionError):
            await stream.send(_encode([translator.run_event("created")]))
            async for batch in batches:
                await stream.send(_encode(_translate(translator, run, batch)) or KEEP_ALIVE)
                if translator.finished:
                    break
    return await stream.end()


def _translate(translator: Translator, run: Run, batch: list[Record | Gap]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for item in batch:
        if isinstance(item, Gap):
            gap = {"from": item.from_seq, "to": item.to_seq}
            out.append({"type": "generic", "generic": {"gap": gap}})
            if run.finished_seq is not None and item.to_seq >= run.finished_seq:
                out += translator.end()
        else:
            out += translator.feed(json.loads(item.payload))
        if translator.finished:
            break
    return out


def _encode(acp_events: list[dict[str, Any]]) -> bytes:
    return b"".join(sse(json.dumps(event).encode()) for event in acp_events)


async def _show(request: web.Request) -> web.Response:
    core, run = _find(request)
    return web.json_response(run_object(run, core.spec.session_id))


async def _events(request: web.Request) -> web.Response:
    """What the ring still holds of the run."""
    core, run = _find(request)
    translator = Translator(run, core.spec.session_id)
    out = [translator.run_event("created")]
    with suppress(CursorInFuture):
        reader = core.log.reader_after(run.first_seq)
        async for batch in follow(core.log, reader, after=run.first_seq, to_the_end=True):
            out += _translate(translator, run, batch)
            if translator.finished:
                break
    return web.json_response({"events": out})


async def _resume(request: web.Request) -> web.Response:
    _find(request)
    raise HttpError(403, "invalid_input", "the run does not wait for an answer")


async def _cancel(request: web.Request) -> web.Response:
    core, run = _find(request)
    if run.result is not None:
        raise HttpError(403, "invalid_input", "the run has already ended")
    core.ask_to_cancel(run)
    return web.json_response(run_object(run, core.spec.session_id), status=202)


def _find(request: web.Request) -> tuple[SessionCore, Run]:
    core = request.app[CORE]
    run = core.find(request.match_info["run_id"])
    if run is None:
        raise HttpError(404, "not_found", "no such run here; older runs are in the transcript")
    return core, run


def _require_agent(name: str) -> None:
    if name != AGENT_NAME:
        raise HttpError(404, "not_found", f"the agent here is named {AGENT_NAME!r}")


async def _parse(request: web.Request) -> _RunRequest:
    body = await request.read()
    try:
        return _RunRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise HttpError(422, "invalid_input", f"{where}: {first['msg']}") from None


def _prompt(messages: list[_Message]) -> str:
    """The text of all parts. Other content arrives with a later version, and is refused now."""
    texts: list[str] = []
    for message in messages:
        if message.role != "user":
            raise HttpError(422, "invalid_input", "input: the session keeps its own history")
        for part in message.parts:
            if (
                part.content is None
                or part.content_encoding != "plain"
                or not part.content_type.startswith("text/")
            ):
                raise HttpError(422, "invalid_input", "input: only plain text parts are taken")
            texts.append(part.content)
    prompt = "\n\n".join(texts)
    if not prompt.strip():
        raise HttpError(422, "invalid_input", "input: the prompt has no text")
    return prompt


def _adopt_session_id(core: SessionCore, wanted: _RunRequest) -> str:
    """The id to answer with; one that the client made up becomes an alias (design §5)."""
    named = wanted.session_id or (wanted.session and wanted.session.id)
    if named is None or named == core.spec.session_id:
        return core.spec.session_id
    if named not in core.aliases and len(core.aliases) >= bounds.SESSION_ALIASES:
        raise HttpError(409, "invalid_input", "this endpoint has one session, and enough names")
    core.aliases.add(named)
    return named
