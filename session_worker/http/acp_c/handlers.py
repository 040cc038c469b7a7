"""What the requests and notifications of ACP-C do to the session (acp.md §2.1, §6).

Called by the transports with one message at a time; nothing here waits. The worker has one
session, so `session/new` attaches to that one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from session_worker import commands, settings
from session_worker.core import QueueFull, SessionCore, Stopping
from session_worker.http.acp_c import jsonrpc
from session_worker.http.acp_c.capabilities import INITIALIZED
from session_worker.http.acp_c.connection import Connection
from session_worker.http.acp_c.content import read_prompt
from session_worker.http.acp_c.feed import Feed
from session_worker.http.acp_c.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NOT_FOUND,
    Answer,
    Id,
    Incoming,
    Json,
    Notification,
    Request,
    RpcError,
)
from session_worker.http.acp_c.methods import (
    Authenticate,
    CancelRequest,
    Initialize,
    ListSessions,
    NewSession,
    OfSession,
    OpenSession,
    Prompt,
    SetConfigOption,
    SetMode,
    checked,
)
from session_worker.http.acp_c.summary import session_info, session_title
from session_worker.http.acp_c.translate import titled
from session_worker.run import Run
from session_worker.transcript import TranscriptFull
from session_worker.updates import Update, usage
from sidecar.protocol import bounds

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Call:
    """One request. `post` is the feed of its own that the client wants the answer over."""

    connection: Connection
    id: Id
    post: Feed | None

    @property
    def core(self) -> SessionCore:
        return self.connection.core

    @property
    def feed(self) -> Feed:
        """Where what the request brings about is told; the client is attached from now on."""
        return self.post or self.connection.attach()


def handle(connection: Connection, message: Incoming, post: Feed | None = None) -> None:
    """Do what a client says; what is answered goes to its streams, or to `post`."""
    match message:
        case Answer():
            connection.settle(message)
        case Notification(method, params):
            _notified(connection, method, params)
        case Request(request_id, method, params):
            call = Call(connection, request_id, post)
            try:
                value = _answer(call, method, params)
                answer = None if value is None else jsonrpc.result(request_id, value)
            except RpcError as refusal:
                answer = jsonrpc.error(request_id, refusal)
            except Exception:
                log.exception("%s failed", method)
                refusal = RpcError(INTERNAL_ERROR, "internal error; the details are in worker.log")
                answer = jsonrpc.error(request_id, refusal)
            if answer is not None:
                _reply(call, method, answer)
    connection.ring()


def _reply(call: Call, method: str, answer: Json) -> None:
    if call.post is not None:
        call.post.send(answer)
    elif method in _OF_THE_SESSION and call.connection.feed is not None:
        call.connection.feed.send(answer)
    else:
        call.connection.send(answer)


def _answer(call: Call, method: str, params: Json) -> Json | None:
    """The result, or None if the answer comes later. Raises `RpcError`."""
    if call.connection.client is None and method != "initialize":
        raise RpcError(INVALID_REQUEST, "initialize first")
    if (known := _METHODS.get(method)) is None:
        raise RpcError(METHOD_NOT_FOUND, f"there is no method {method[:80]!r} here")
    model, handler = known
    wanted = checked(model, params)
    if isinstance(wanted, OfSession | OpenSession):
        _require_session(call.core, wanted.sessionId)
    return handler(call, wanted)


def _require_session(core: SessionCore, session_id: str) -> None:
    if session_id != core.spec.session_id:
        shown = session_id[:80]
        raise RpcError(NOT_FOUND, "that session is not at this endpoint", {"sessionId": shown})


# --- the connection ------------------------------------------------------------------------


def _initialize(call: Call, wanted: Initialize) -> Json:
    if call.connection.client is not None:
        raise RpcError(INVALID_REQUEST, "this connection is initialized already")
    call.connection.client = wanted.clientCapabilities or {}
    return INITIALIZED


def _authenticate(call: Call, wanted: Authenticate) -> Json:
    raise RpcError(INVALID_PARAMS, "there is nothing to authenticate with here: authMethods is []")


# --- the session ---------------------------------------------------------------------------


def _new(call: Call, wanted: NewSession) -> None:
    connection = call.connection
    if connection.created:
        raise RpcError(INVALID_REQUEST, "one session per endpoint, and this connection has it")
    connection.created = True
    feed = call.post or connection.attach(created=True)
    state = {"sessionId": call.core.spec.session_id, **_state(call.core, wanted)}
    # the answer first: clients open the session's stream after it, and know the session by it
    (call.post or connection).send(jsonrpc.result(call.id, state))
    feed.tell(*_introduction(call.core))
    feed.ask_pending()


def _load(call: Call, wanted: OpenSession) -> None:
    feed = call.feed
    feed.load()
    _resumed(call, feed, wanted)
    feed.ask_pending()  # now, so that no event of before the answer asks


def _resume(call: Call, wanted: OpenSession) -> None:
    feed = call.feed
    _resumed(call, feed, wanted)
    feed.ask_pending()


def _resumed(call: Call, feed: Feed, wanted: OpenSession) -> None:
    # before the answer: by its first update the Python SDK learns of a stream to open
    feed.tell(*_introduction(call.core))
    feed.send(jsonrpc.result(call.id, _state(call.core, wanted)))


def _state(core: SessionCore, wanted: NewSession) -> Json:
    """What can be chosen; `_meta` says what of the wish was not: a worker is where it is, with
    the MCP servers that its daemon gave it."""
    modes = [{"id": mode, "name": mode, "description": s} for mode, s in settings.MODES.items()]
    ignored = {"cwd": wanted.cwd != str(core.spec.cwd), "mcpServers": bool(wanted.mcpServers)}
    return {
        "modes": {"currentModeId": core.mode, "availableModes": modes},
        "configOptions": core.config_options(),
        "_meta": {
            "sidecar/cwd": str(core.spec.cwd),
            "sidecar/ignored": [name for name, is_ignored in ignored.items() if is_ignored],
        },
    }


def _introduction(core: SessionCore) -> list[Update]:
    """What holds for the session now, and is no part of its conversation."""
    core.visited.set()
    told = [core.commands]
    if shown := session_title(core):
        told.append(titled(shown))
    if window := core.spec.provider.facts.context_window:
        told.append(usage(core.context_tokens, window, core.usage.cost_usd))
    return told


def _list(call: Call, wanted: ListSessions) -> Json:
    elsewhere = wanted.cwd is not None and wanted.cwd != str(call.core.spec.cwd)
    return {"sessions": [] if elsewhere else [session_info(call.core)]}


def _close(call: Call, wanted: OfSession) -> Json | None:
    """Cancels what is under way and detaches the client. The session lives on: its daemon ends
    it, when it is told to or nobody has needed it for a while."""
    feed = call.post or call.connection.feed
    _cancel_runs(call.connection)
    if feed is None:
        return {}
    feed.close(call.id)
    return None


# --- prompts -------------------------------------------------------------------------------


def _prompt(call: Call, wanted: Prompt) -> None:
    text, content = read_prompt(wanted.prompt)
    feed = call.feed
    run = _submit(call.core, text, content)
    run.editor = call.connection.editor(feed)
    feed.expect(run, call.id)


def _submit(core: SessionCore, text: str, content: list[Json] | None) -> Run:
    try:
        match commands.typed(text):
            case (commands.COMPACT, focus) if content is None:
                if len(focus) > bounds.COMPACTION_FOCUS_CHARS:
                    longest = bounds.COMPACTION_FOCUS_CHARS
                    raise RpcError(INVALID_PARAMS, f"/compact takes {longest} characters at most")
                return core.submit("", compact=focus)
            case typed:
                # whether there is such a skill is known when it is its turn
                return core.submit(text, content=content, command=typed is not None)
    except QueueFull:
        raise RpcError(
            INVALID_REQUEST, f"{bounds.PROMPT_QUEUE} prompts already wait; try again later"
        ) from None
    except Stopping:
        raise RpcError(INTERNAL_ERROR, "the session is ending") from None
    except TranscriptFull as error:
        raise RpcError(INTERNAL_ERROR, f"the prompt was not accepted: {error}") from None


def _cancel_runs(connection: Connection) -> None:
    """What runs now, whoever asked for it, and what this client has waiting. Prompts of others
    stay in the queue."""
    core = connection.core
    mine = [core.find(run_id) for feed in connection.feeds for run_id in feed.own_runs]
    for run in {run.run_id: run for run in (*mine, core.current) if run is not None}.values():
        core.ask_to_cancel(run)


# --- what can be chosen --------------------------------------------------------------------


def _set_mode(call: Call, wanted: SetMode) -> Json:
    _choose(call.core.set_mode, wanted.modeId)
    return {}


def _set_config_option(call: Call, wanted: SetConfigOption) -> Json:
    setters = {"mode": call.core.set_mode, "model": call.core.set_model}
    if wanted.configId not in setters:
        raise RpcError(INVALID_PARAMS, f"configId is one of {', '.join(setters)}")
    _choose(setters[wanted.configId], wanted.value)
    return {"configOptions": call.core.config_options()}


def _choose(setter: Callable[[str], None], value: str) -> None:
    try:
        setter(value)
    except ValueError as error:
        raise RpcError(INVALID_PARAMS, str(error)) from None
    except TranscriptFull as error:
        raise RpcError(INTERNAL_ERROR, f"the choice was not accepted: {error}") from None


# --- notifications -------------------------------------------------------------------------


def _notified(connection: Connection, method: str, params: Json) -> None:
    """Notifications are never answered, so what is wrong with one is nobody's to know."""
    try:
        match method:
            case "session/cancel":
                wanted = checked(OfSession, params)
                _require_session(connection.core, wanted.sessionId)
                _cancel_runs(connection)
            case jsonrpc.CANCEL:
                _cancel_request(connection, checked(CancelRequest, params).requestId)
            case _:
                pass
    except RpcError as refusal:
        log.debug("%s ignored: %s", method, refusal.message)


def _cancel_request(connection: Connection, request_id: Id) -> None:
    """Only prompts last long enough to be cancelled; they answer `cancelled`."""
    for run in filter(None, (feed.run_of(request_id) for feed in connection.feeds)):
        connection.core.ask_to_cancel(run)


Handler = Callable[[Call, Any], Json | None]
_METHODS: dict[str, tuple[type[BaseModel], Handler]] = {
    "initialize": (Initialize, _initialize),
    "authenticate": (Authenticate, _authenticate),
    "session/new": (NewSession, _new),
    "session/load": (OpenSession, _load),
    "session/resume": (OpenSession, _resume),
    "session/list": (ListSessions, _list),
    "session/close": (OfSession, _close),
    "session/prompt": (Prompt, _prompt),
    "session/set_mode": (SetMode, _set_mode),
    "session/set_config_option": (SetConfigOption, _set_config_option),
}
_OF_THE_SESSION = {
    "session/load",
    "session/resume",
    "session/close",
    "session/prompt",
    "session/set_mode",
    "session/set_config_option",
}
"""Their answers stand in the order of the session's events."""
