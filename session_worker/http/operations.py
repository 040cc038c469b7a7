"""The table of all routes, as the OpenAPI document describes them (`openapi.py`).

Whoever adds a route adds its row: `tests/unit/test_openapi.py` compares it with the router, and the
fuzz of the document (`tests/e2e/test_openapi_fuzz.py`) with what is answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp.hdrs import LAST_EVENT_ID
from pydantic import BaseModel

from session_worker.http import shapes
from session_worker.http.acp_c.streamable_http import CONNECTION_ID, SESSION_ID
from session_worker.http.cursor import DIGITS
from session_worker.http.mcp import ServerApproval
from session_worker.http.permissions import PermissionAnswer
from session_worker.http.runs import ResumeRequest, RunRequest
from session_worker.http.session import CompactRequest

Models = tuple[type[BaseModel], ...]
JSON, SSE = "application/json", "text/event-stream"


@dataclass(frozen=True)
class Parameter:
    """Of the query or the headers; those of the path are read off it."""

    name: str
    where: str
    says: str
    schema: Mapping[str, Any]
    required: bool = False


@dataclass(frozen=True)
class Reply:
    """`content`: for each media type the models, one of which it is, or the data of each event of a
    stream is; none where it has no model."""

    says: str
    content: Mapping[str, Models] = field(default_factory=dict[str, Models])
    header: str | None = None


@dataclass(frozen=True)
class Operation:
    """`refusals` are the statuses of `Error` beside those that any route has."""

    method: str
    path: str
    name: str
    says: str
    replies: Mapping[int, Reply]
    refusals: tuple[int, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: Models = ()
    body_required: bool = True
    example: Any = None
    """Of the body."""


def _message(text: str) -> Any:
    return {"role": "user", "parts": [{"content": text}]}


def _json(model: type[BaseModel]) -> Mapping[int, Reply]:
    return {200: Reply("OK", {JSON: (model,)})}


REFUSALS = {
    400: "No HTTP, or something of it that makes no sense",
    401: "Over TCP: the token is missing or wrong",
    403: "Not for you, or not now",
    404: "Not here",
    406: "The client does not take what this is",
    408: "The body took too long",
    409: "Not now: it is in the way of something, or enough wait already",
    413: "The body is too large",
    415: "The body is not said to be JSON",
    421: "Over TCP: the request is for another host",
    422: "The body is not what it should be; the message says where",
    500: "A defect; the details are in worker.log",
    503: "Too many clients, or the session is ending",
    504: "It does not end",
    507: "The disk is full",
}
ANY = (400, 401, 403, 421, 500, 503)
"""What any request may be refused with (`access.py`, `connection.py`)."""
ANY_WRITE = (408, 413, 415)
"""What one may that has a body (`access.py`, `intake.py`)."""

_RUN_EVENTS = (shapes.RunEvent, shapes.MessageEvent, shapes.PartEvent, shapes.GenericEvent)
_RUN_REPLIES = {
    200: Reply(
        "Mode sync: the run once it is over or waits for an answer. Mode stream: it as it happens",
        {JSON: (shapes.Run,), SSE: _RUN_EVENTS},
        header="Run-ID",
    ),
    202: Reply("Mode async: the run as it is now", {JSON: (shapes.Run,)}, header="Run-ID"),
}
_LAST_EVENT_ID = Parameter(
    LAST_EVENT_ID,
    "header",
    "The number of the last event that was seen, and counts before others; of a client that has "
    "seen none it may be empty",
    {"type": "string", "pattern": f"^[0-9]{{0,{DIGITS}}}$"},
)
_CURSOR = (
    Parameter(
        "after",
        "query",
        "The number of the last event that was seen",
        {"type": "integer", "minimum": 0, "default": 0},
    ),
    _LAST_EVENT_ID,
    Parameter(
        "follow",
        "query",
        "0 ends the stream at the newest event",
        {"type": "string", "enum": ["0", "1"], "default": "1"},
    ),
)
_FORMAT = Parameter(
    "format",
    "query",
    "Of the answer",
    {"type": "string", "enum": ["json", "jsonl", "markdown"], "default": "json"},
)
_CONNECTION = Parameter(
    CONNECTION_ID, "header", "From the answer to `initialize`", {"type": "string"}
)
_SESSION = Parameter(
    SESSION_ID, "header", "Must not contradict `params.sessionId`", {"type": "string"}
)
_STREAM_OF = Parameter(
    SESSION_ID, "header", "Whose stream; that of the connection without", {"type": "string"}
)
_RPC_STREAM = (shapes.RpcRequest, shapes.RpcNotification, shapes.RpcResult, shapes.RpcFailure)
_RPC_REFUSED = Reply("No message, or refused as a whole", {JSON: (shapes.RpcFailure, shapes.Error)})

OPERATIONS = (
    Operation("GET", "/openapi.json", "describe", "This document", {200: Reply("OK", {JSON: ()})}),
    Operation("GET", "/healthz", "health", "Who and how the worker is", _json(shapes.Health)),
    Operation("GET", "/ping", "ping", "ACP-R: nothing, at once", _json(shapes.Empty)),
    Operation("GET", "/agents", "listAgents", "ACP-R: the one agent", _json(shapes.Agents)),
    Operation(
        "GET",
        "/agents/{name}",
        "showAgent",
        "ACP-R: the agent of that name",
        _json(shapes.AgentManifest),
        refusals=(404,),
    ),
    Operation(
        "POST",
        "/runs",
        "createRun",
        "ACP-R: a prompt. The content type may be missing",
        _RUN_REPLIES,
        refusals=(404, 409, 422, 507),
        body=(RunRequest,),
        example={"agent_name": "sidecar", "input": [_message("list the files here")]},
    ),
    Operation(
        "GET", "/runs/{run_id}", "showRun", "ACP-R: a run", _json(shapes.Run), refusals=(404,)
    ),
    Operation(
        "POST",
        "/runs/{run_id}",
        "resumeRun",
        "ACP-R: an answer to what the run waits for: the id or the kind of an option, and in a "
        "second part a reason; or as JSON `request_id`, `option_id` and `reason`",
        _RUN_REPLIES,
        refusals=(404, 422),
        body=(ResumeRequest,),
        example={
            "await_resume": {"type": "message", "message": _message("allow_once")},
            "mode": "sync",
        },
    ),
    Operation(
        "POST",
        "/runs/{run_id}/cancel",
        "cancelRun",
        "ACP-R: begins to end the run",
        {202: Reply("The run", {JSON: (shapes.Run,)})},
        refusals=(404,),
    ),
    Operation(
        "GET",
        "/runs/{run_id}/events",
        "listRunEvents",
        "ACP-R: what the ring still holds of the run",
        _json(shapes.RunEvents),
        refusals=(404,),
    ),
    *(
        Operation("GET", path, name, f"ACP-R: the session{spelling}", _json(shapes.Session), (404,))
        for path, name, spelling in (
            ("/sessions/{session_id}", "showSession", ""),
            ("/session/{session_id}", "showSessionToo", ", as its OpenAPI document has it"),
        )
    ),
    Operation(
        "GET",
        "/sessions/{session_id}/events",
        "followEvents",
        "The session's events from a cursor on: `id` is their number, `event` their type",
        {
            200: Reply(
                "Until the worker ends, or the client is too slow",
                {SSE: (shapes.Envelope, shapes.Gap)},
            )
        },
        refusals=(404,),
        parameters=_CURSOR,
    ),
    Operation(
        "GET",
        "/sessions/{session_id}/transcript",
        "showTranscript",
        "The durable record of the session",
        {
            200: Reply(
                "jsonl: a record of the same a line",
                {JSON: (shapes.Transcript,), "application/jsonl": (), "text/markdown": ()},
            )
        },
        refusals=(404,),
        parameters=(_FORMAT,),
    ),
    Operation(
        "GET",
        "/sessions/{session_id}/context",
        "showContext",
        "What filled the context, call by call",
        _json(shapes.Context),
        refusals=(404,),
    ),
    Operation(
        "POST",
        "/sessions/{session_id}/cancel",
        "cancelSession",
        "Ends the runs under way and waiting; answers when nothing of them is left",
        _json(shapes.Cancelled),
        refusals=(404, 504),
        body=(shapes.Ignored,),
        body_required=False,
    ),
    Operation(
        "POST",
        "/sessions/{session_id}/compact",
        "compact",
        "Compacts the conversation in its turn; answers when that is over",
        _json(shapes.Compacted),
        refusals=(404, 409, 422, 507),
        body=(CompactRequest,),
        body_required=False,
    ),
    Operation(
        "GET",
        "/sessions/{session_id}/permissions",
        "listQuestions",
        "The questions that wait for an answer",
        _json(shapes.Questions),
        refusals=(404,),
    ),
    Operation(
        "POST",
        "/sessions/{session_id}/permissions/{request_id}",
        "answerQuestion",
        "Answers one. The first answer of any client counts",
        _json(shapes.Empty),
        refusals=(404, 422),
        body=(PermissionAnswer,),
        example={"option_id": "allow_once", "reason": ""},
    ),
    Operation(
        "GET",
        "/sessions/{session_id}/mcp",
        "listMcpServers",
        "The MCP servers of the session, and how they are",
        _json(shapes.McpServers),
        refusals=(404,),
    ),
    Operation(
        "POST",
        "/sessions/{session_id}/mcp/{server}/restart",
        "restartMcpServer",
        "Starts one again",
        _json(shapes.Empty),
        refusals=(404,),
        body=(shapes.Ignored,),
        body_required=False,
    ),
    Operation(
        "POST",
        "/sessions/{session_id}/mcp/{server}/approve",
        "approveMcpServer",
        "Approves what a person has seen of one, and starts it",
        _json(shapes.Empty),
        refusals=(404, 409, 422),
        body=(ServerApproval,),
    ),
    Operation(
        "POST",
        "/acp",
        "say",
        "ACP-C: one JSON-RPC message. `initialize` opens a connection and is answered at once, "
        "all else over a stream of it; with `accept: text/event-stream` alone over this response",
        {
            200: Reply(
                "The answer to `initialize`, or what happens up to the answer",
                {JSON: (shapes.RpcResult,), SSE: _RPC_STREAM},
                header=CONNECTION_ID,
            ),
            202: Reply("Taken; what there is to say comes over a stream"),
            400: _RPC_REFUSED,
            501: Reply("A batch", {JSON: (shapes.RpcFailure,)}),
        },
        refusals=(404,),
        parameters=(_CONNECTION, _SESSION),
        body=(shapes.RpcRequest, shapes.RpcNotification, shapes.RpcAnswer),
        example={
            "jsonrpc": "2.0",
            "id": 0,
            "method": "initialize",
            "params": {"protocolVersion": 1, "clientCapabilities": {}},
        },
    ),
    Operation(
        "GET",
        "/acp",
        "listen",
        "ACP-C: the messages for a client. With `upgrade: websocket` a connection of its own, with "
        "the messages of both sides, one a text frame, `initialize` first",
        {
            101: Reply("A WebSocket", header=CONNECTION_ID),
            200: Reply("Until the connection ends", {SSE: _RPC_STREAM}, header=CONNECTION_ID),
        },
        refusals=(404, 406, 409),
        parameters=(_CONNECTION, _STREAM_OF, _LAST_EVENT_ID),
    ),
    Operation(
        "DELETE",
        "/acp",
        "leave",
        "ACP-C: ends a connection, and nothing that it began",
        {202: Reply("It is gone")},
        refusals=(404,),
        parameters=(replace(_CONNECTION, required=True),),
    ),
)
