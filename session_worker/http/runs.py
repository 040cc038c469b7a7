"""The Agent Communication Protocol's routes: ping, agents, runs (acp.md §4)."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, suppress
from typing import Any, Literal

from aiohttp import web
from pydantic import BaseModel, Field, StrictBool, ValidationError

from session_worker.blocks import Block
from session_worker.core import SessionCore
from session_worker.http.acp_r import AGENT_NAME, MANIFEST, Translator, run_object
from session_worker.http.body import parse_body
from session_worker.http.errors import HttpError
from session_worker.http.keys import CORE
from session_worker.http.permissions import settle
from session_worker.http.prompt_blocks import image_block
from session_worker.http.sse import KEEP_ALIVE, EventStream, follow, sse
from session_worker.http.submit import submit
from session_worker.permission_request import PermissionRequest
from session_worker.run import Run
from sidecar.protocol import bounds
from sidecar.protocol.ring import CursorInFuture, Gap, Record


class Part(BaseModel):
    content_type: str = "text/plain"
    content: str | None = None
    content_url: str | None = None
    content_encoding: Literal["plain", "base64"] = "plain"


class Message(BaseModel):
    role: str = Field(pattern=r"^(user|agent(/[a-zA-Z0-9_\-]+)?)$")
    parts: list[Part]


class NamedSession(BaseModel):
    id: str = Field(min_length=1, max_length=64)


class RunRequest(BaseModel):
    agent_name: str
    input: list[Message]
    mode: Literal["sync", "async", "stream"] = "sync"
    session_id: str | None = Field(default=None, min_length=1, max_length=64)
    session: NamedSession | None = None
    steer: StrictBool = False
    """Ours: a prompt that does not wait for the end of the run under way."""


class AwaitResume(BaseModel):
    message: Message


class _NamedAnswer(BaseModel):
    """Ours: an answer as JSON, which says to what."""

    request_id: str
    option_id: str
    reason: str = ""


class ResumeRequest(BaseModel):
    await_resume: AwaitResume
    mode: Literal["sync", "async", "stream"]


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
    wanted = await parse_body(request, RunRequest)
    _require_agent(wanted.agent_name)
    prompt, content = _prompt(wanted.input)
    session_id = _adopt_session_id(core, wanted)
    run = submit(core, prompt, content=content, steer=wanted.steer)
    return await _answer(request, run, wanted.mode, session_id)


async def _answer(
    request: web.Request, run: Run, mode: str, session_id: str, after: int | None = None
) -> web.StreamResponse:
    """The run as the client wants to see it; with `after`, from there on."""
    core = request.app[CORE]
    if mode == "stream":
        return await _stream(request, run, session_id, after)
    if mode == "sync":
        with core.attendance.attached():
            await _over_or_awaiting(core, run)
    return web.json_response(
        run_object(run, session_id, _question(core, run)),
        status=200 if mode == "sync" else 202,
        headers={"Run-ID": run.run_id},
    )


async def _over_or_awaiting(core: SessionCore, run: Run) -> None:
    while run.result is None and _question(core, run) is None:  # somebody else may be quick
        async with asyncio.TaskGroup() as group:
            over = group.create_task(run.done.wait())
            awaiting = group.create_task(core.requests.wait_of_run((run.host or run).run_id))
            await asyncio.wait((over, awaiting), return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            awaiting.cancel()


def _question(core: SessionCore, run: Run) -> PermissionRequest | None:
    """What the run waits for."""
    return core.requests.of_run((run.host or run).run_id)


async def _stream(
    request: web.Request, run: Run, session_id: str, after: int | None
) -> web.StreamResponse:
    """The run as it happens. A client that leaves ends its stream, never the run."""
    core = request.app[CORE]
    translator = Translator(run, session_id, lambda: _question(core, run))
    begin = run.first_seq if after is None else after
    reader = core.log.reader_after(begin)
    stream = await EventStream.open(request, **{"Run-ID": run.run_id})
    batches = follow(core.log, reader, after=begin, to_the_end=False)
    async with aclosing(batches):
        with suppress(ConnectionError), core.attendance.attached():
            if after is None:
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
                out += translator.waiting(item.to_seq)
        else:
            out += translator.feed(json.loads(item.payload))
        if translator.finished:
            break
    return out


def _encode(acp_events: list[dict[str, Any]]) -> bytes:
    return b"".join(sse(json.dumps(event).encode()) for event in acp_events)


async def _show(request: web.Request) -> web.Response:
    core, run = _find(request)
    return web.json_response(run_object(run, core.spec.session_id, _question(core, run)))


async def _events(request: web.Request) -> web.Response:
    """What the ring still holds of the run."""
    core, run = _find(request)
    translator = Translator(run, core.spec.session_id, lambda: _question(core, run))
    out = [translator.run_event("created")]
    with suppress(CursorInFuture):
        reader = core.log.reader_after(run.first_seq)
        async for batch in follow(core.log, reader, after=run.first_seq, to_the_end=True):
            out += _translate(translator, run, batch)
            if translator.finished:
                break
    return web.json_response({"events": out})


async def _resume(request: web.Request) -> web.StreamResponse:
    """Answers the question that the run was last seen to wait for, by whomever: where several
    clients answer, each should name its own."""
    core, run = _find(request)
    if run.shown_question is None:
        raise HttpError(403, "invalid_input", "the run does not wait for an answer")
    wanted = await parse_body(request, ResumeRequest)
    answer = _said(wanted.await_resume.message.parts, run.shown_question)
    question = settle(core, answer.request_id, answer.option_id, answer.reason)
    # a stream goes on where the last one ended: the next question may have been asked already
    return await _answer(request, run, wanted.mode, core.spec.session_id, question.seq)


def _said(parts: list[Part], shown: str) -> _NamedAnswer:
    words = [part.content or "" for part in parts] or [""]
    if not parts or parts[0].content_type != "application/json":
        return _NamedAnswer(
            request_id=shown, option_id=words[0].strip(), reason="\n".join(words[1:])
        )
    try:
        return _NamedAnswer.model_validate_json(words[0])
    except ValidationError:
        raise HttpError(
            422, "invalid_input", 'an answer is {"request_id", "option_id", "reason"}'
        ) from None


async def _cancel(request: web.Request) -> web.Response:
    core, run = _find(request)
    if run.result is not None:
        raise HttpError(403, "invalid_input", "the run has already ended")
    core.ask_to_cancel(run)
    return web.json_response(run_object(run, core.spec.session_id, None), status=202)


def _find(request: web.Request) -> tuple[SessionCore, Run]:
    core = request.app[CORE]
    run = core.find(request.match_info["run_id"])
    if run is None:
        raise HttpError(404, "not_found", "no such run here; older runs are in the transcript")
    core.attendance.polled()
    return core, run


def _require_agent(name: str) -> None:
    if name != AGENT_NAME:
        raise HttpError(404, "not_found", f"the agent here is named {AGENT_NAME!r}")


def _prompt(messages: list[Message]) -> tuple[str, list[Block] | None]:
    """The text of all parts, and where there are images, all as blocks of the Messages API."""
    blocks: list[Block] = []
    for message in messages:
        if message.role != "user":
            raise HttpError(422, "invalid_input", "input: the session keeps its own history")
        blocks += map(_block, message.parts)
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    prompt = "\n\n".join(texts)
    if len(texts) == len(blocks) and not prompt.strip():
        raise HttpError(422, "invalid_input", "input: the prompt has no text")
    return prompt, None if len(texts) == len(blocks) else [b for b in blocks if b.get("text") != ""]


def _block(part: Part) -> Block:
    if part.content is not None and part.content_type.startswith("text/"):
        if part.content_encoding == "plain":
            return {"type": "text", "text": part.content}
    elif part.content is not None and part.content_encoding == "base64":
        try:
            return image_block(part.content_type, part.content)
        except ValueError as error:
            raise HttpError(422, "invalid_input", f"input: {error}") from None
    raise HttpError(422, "invalid_input", "input: parts are plain text, or images in base64")


def _adopt_session_id(core: SessionCore, wanted: RunRequest) -> str:
    """The id to answer with; one that the client made up becomes an alias (design §5)."""
    named = wanted.session_id or (wanted.session and wanted.session.id)
    if named is None or named == core.spec.session_id:
        return core.spec.session_id
    if named not in core.aliases and len(core.aliases) >= bounds.SESSION_ALIASES:
        raise HttpError(409, "invalid_input", "this endpoint has one session, and enough names")
    core.aliases.add(named)
    return named
