"""What the routes answer with, and JSON-RPC, as models for the OpenAPI document (`openapi.py`).

Nobody makes one of these: the routes build dictionaries. Answers are closed, so that a member which
a route grows and the document lacks fails the fuzz of it. What comes from elsewhere (a tool's
input, a record of the transcript) is open.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, RootModel

from session_worker.http.acp_c.jsonrpc import ID_CHARS
from session_worker.mcp_servers.server import State as McpState
from session_worker.result import AgentLoopResult
from session_worker.transcript import Kind

Json = dict[str, Any]
State = Literal["idle", "running", "waiting", "sleeping"]
RpcId = Annotated[str, Field(max_length=ID_CHARS)] | int | None


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True, use_attribute_docstrings=True)


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow", defer_build=True, use_attribute_docstrings=True)


class Error(_Closed):
    """Every refusal that is not an answer to a JSON-RPC message."""

    code: Literal[
        "conflict",
        "forbidden",
        "invalid_input",
        "method_not_allowed",
        "misdirected",
        "not_found",
        "overloaded",
        "server_error",
        "timed_out",
        "too_large",
        "unauthorized",
    ]
    message: str
    """For people; programs go by the code."""


class Empty(_Closed):
    """`{}`."""


class Ignored(RootModel[Any]):
    """Nothing of it is read, but without its content type the request is refused."""


# --- the session ---------------------------------------------------------------------------


class RunningRun(_Closed):
    run_id: UUID
    started_at: datetime


class Health(_Closed):
    session_id: str
    pid: int
    incarnation: int
    version: str
    state: State
    run: RunningRun | None


class Session(_Closed):
    id: str
    """As it was asked for, be it an alias."""
    history: list[str] = Field(max_length=0)
    state: None


class Record(_Open):
    """One line of the transcript; further members by its kind."""

    v: int
    n: int
    at: datetime
    kind: Kind


class Transcript(_Closed):
    session_id: str
    records: list[Record]


class Context(_Closed):
    session_id: str
    model: str
    context_tokens: int
    """What the next call will hold at least."""
    context_window: int | None
    kept_out: int
    """About how many tokens of results went to code, and never into the context."""
    calls: list[Record]
    """The `api_call` records."""


class Cancelled(_Closed):
    run_id: UUID | None
    """The run that was under way."""
    state: State


# --- runs ----------------------------------------------------------------------------------


class Compacted(_Closed):
    run_id: UUID
    result: AgentLoopResult


class AgentManifest(_Closed):
    name: str
    description: str
    input_content_types: list[str]
    output_content_types: list[str]
    metadata: Json


class Agents(_Closed):
    agents: list[AgentManifest]


class AgentPart(_Closed):
    content_type: Literal["text/plain", "application/json"]
    content: str


class AgentMessage(_Closed):
    role: Literal["agent/sidecar"]
    parts: list[AgentPart]


class AwaitRequest(_Closed):
    """What a person is asked: first for people, then the whole question as JSON."""

    type: Literal["message"]
    message: AgentMessage


class RunError(_Closed):
    code: Literal["server_error"]
    message: str


class Run(_Closed):
    run_id: UUID
    agent_name: Literal["sidecar"]
    session_id: str
    status: Literal[
        "created", "in-progress", "awaiting", "cancelling", "cancelled", "completed", "failed"
    ]
    await_request: AwaitRequest | None
    output: list[AgentMessage]
    error: RunError | None
    created_at: datetime
    finished_at: datetime | None
    result: AgentLoopResult | None


class RunEvent(_Closed):
    type: Literal[
        "run.created",
        "run.in-progress",
        "run.awaiting",
        "run.completed",
        "run.cancelled",
        "run.failed",
    ]
    run: Run


class MessageEvent(_Closed):
    type: Literal["message.created", "message.completed"]
    message: AgentMessage


class PartEvent(_Closed):
    type: Literal["message.part"]
    part: AgentPart


class GenericEvent(_Closed):
    """Ours: an event of the session under its name, or the update or gap that it is."""

    type: Literal["generic"]
    generic: Json


class RunEvents(_Closed):
    events: list[RunEvent | MessageEvent | PartEvent | GenericEvent]


# --- questions -----------------------------------------------------------------------------


class Option(_Closed):
    optionId: str
    name: str
    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class Question(_Closed):
    request_id: UUID
    run_id: UUID
    at: datetime
    toolCall: Json
    options: list[Option]
    meta: Json = Field(alias="_meta")


class Questions(_Closed):
    pending: list[Question]


# --- MCP servers ---------------------------------------------------------------------------


class Approvable(_Closed):
    """What a person approves: everything but values of variables and headers."""

    fingerprint: str
    command: str | None
    args: list[str]
    cwd: str | None
    url: str | None


class McpServer(_Closed):
    name: str
    source: str
    transport: Literal["connector", "http", "stdio"]
    state: McpState
    reason: str
    required: bool
    env: list[str]
    headers: list[str]
    server: dict[str, str]
    """Its name, version and protocol."""
    tools: list[str]
    problems: list[str]
    stderr: str
    sign_in_at: str | None
    approval: Approvable | None
    """What is still to be approved."""


class McpServers(_Closed):
    servers: list[McpServer]


# --- events --------------------------------------------------------------------------------


class Envelope(_Closed):
    """One event of the session."""

    seq: int
    at: datetime
    run_id: UUID | None
    type: str
    data: Json
    truncated: Literal[True] | None = None
    """Strings of it were shortened to fit the ring."""
    whole: Literal["transcript"] | None = None
    """Where all of it is."""


class Gap(_Closed):
    """Events that fell out of the ring before they could be shown, first and last included."""

    first: int = Field(alias="from")
    last: int = Field(alias="to")


# --- JSON-RPC ------------------------------------------------------------------------------


class RpcNotification(_Open):
    jsonrpc: Literal["2.0"]
    method: str
    params: Json | None = None


class RpcRequest(RpcNotification):
    id: RpcId


class RpcAnswer(_Open):
    """To a request of ours, such as `session/request_permission`; it has a `result` or an
    `error`."""

    jsonrpc: Literal["2.0"]
    id: RpcId
    result: Any = None
    error: Any = None


class RpcResult(_Closed):
    jsonrpc: Literal["2.0"]
    id: RpcId
    result: Json


class RpcError(_Closed):
    code: int
    message: str
    data: Json | None = None


class RpcFailure(_Closed):
    jsonrpc: Literal["2.0"]
    id: RpcId
    error: RpcError
