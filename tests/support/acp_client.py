"""An ACP-C client for tests, over HTTP and WebSocket: it holds all it is sent against the schema.

It opens streams as the official SDKs do (acp.md §3.3): `eager` as the TypeScript one, before it
says anything of a session; `late` as the Python one, on the first message that names the session.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp

from session_worker.demo_model import Reply
from tests.support.acp_schema import check
from tests.support.endpoint import Endpoint
from tests.support.scripted import FINE, Scripted

Json = dict[str, Any]
WAIT_S = 30.0
"""For what comes in milliseconds on an idle machine."""
NOTICES: Json = {"session": {"notices": {}}}


class AcpClient:
    """`seen` is all that was received, in that order; `numbers` the `id:` lines of streams."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.seen: list[Json] = []
        self.numbers: list[int] = []
        self.connection_id = ""
        self._methods: dict[Any, str] = {}
        self._ids = itertools.count(1)
        self._came = asyncio.Event()

    async def post(self, message: Json) -> None:
        raise NotImplementedError

    # --- saying ----------------------------------------------------------------------------

    async def start(self, method: str, **params: Any) -> int:
        """The id of the request."""
        request_id = next(self._ids)
        self._methods[request_id] = method
        await self.post({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        return request_id

    async def call(self, method: str, **params: Any) -> Json:
        """The result."""
        answer = await self.answer_to(await self.start(method, **params))
        assert "result" in answer, answer
        return answer["result"]

    async def refused(self, method: str, **params: Any) -> int:
        """The error's code."""
        answer = await self.answer_to(await self.start(method, **params))
        assert "error" in answer, answer
        return answer["error"]["code"]

    async def notify(self, method: str, **params: Any) -> None:
        await self.post({"jsonrpc": "2.0", "method": method, "params": params})

    async def reply(self, request: Json, result: Json) -> None:
        await self.post({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def new(self) -> Json:
        return await self.call("session/new", cwd="/", mcpServers=[])

    async def load(self) -> Json:
        return await self.call("session/load", **self.named, cwd="/", mcpServers=[])

    async def resume(self) -> Json:
        return await self.call("session/resume", **self.named, cwd="/")

    async def begin(self, text: str) -> int:
        """The id of the prompt's request."""
        block = {"type": "text", "text": text}
        return await self.start("session/prompt", **self.named, prompt=[block])

    async def prompt(self, text: str = "go") -> str:
        """The stop reason."""
        answer = await self.answer_to(await self.begin(text))
        assert "result" in answer, answer
        return answer["result"]["stopReason"]

    async def choose(self, question: Json, option: str) -> None:
        await self.reply(question, {"outcome": {"outcome": "selected", "optionId": option}})

    @property
    def named(self) -> Json:
        return {"sessionId": self.session_id}

    # --- hearing ---------------------------------------------------------------------------

    async def until(self, is_it: Callable[[Json], Any], what: str) -> Json:
        """The first message of that kind, come already or still to come."""
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                for index in itertools.count():
                    if is_it(message := await self._message(index)):
                        return message
        raise AssertionError(f"no {what} within {WAIT_S} s, but {self.seen}")

    async def each(self) -> AsyncGenerator[Json]:
        """All messages, come already or still to come."""
        for index in itertools.count():
            yield await self._message(index)

    async def _message(self, index: int) -> Json:
        while index >= len(self.seen):
            self._came.clear()
            await self._came.wait()
        return self.seen[index]

    async def answer_to(self, request_id: int) -> Json:
        is_it: Callable[[Json], bool] = lambda m: "method" not in m and m["id"] == request_id  # noqa: E731
        return await self.until(is_it, f"the answer to {request_id}")

    async def question(self) -> Json:
        """The first request for a permission."""
        return await self.until(lambda m: m.get("method") == "session/request_permission", "asked")

    async def update(self, kind: str) -> Json:
        """The first update of that kind."""
        return _update(await self.until(lambda m: _update(m).get("sessionUpdate") == kind, kind))

    def updates(self, kind: str | None = None) -> list[Json]:
        found = [update for message in self.seen if (update := _update(message))]
        return [update for update in found if kind in (None, update["sessionUpdate"])]

    def texts(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update["content"]["text"] for update in self.updates(kind))

    def position(self, is_it: Callable[[Json], Any]) -> int:
        return next(index for index, message in enumerate(self.seen) if is_it(message))

    def received(self, message: Json) -> None:
        check(message, self._methods.get(message.get("id"), ""))
        self.seen.append(message)
        self._came.set()


async def told(client: AcpClient, scripted: Scripted, *calls: Json) -> list[str]:
    """What the model is told of `calls`, each made in a turn of its own of one run."""
    scripted.answers.extend([*(Reply([call]) for call in calls), FINE])
    assert await client.prompt() == "end_turn"
    sent = scripted.sent[-2 * len(calls) :]
    blocks = [block for message in sent for block in message["content"]]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


def _update(message: Json) -> Json:
    return message["params"]["update"] if message.get("method") == "session/update" else {}


# --- over HTTP -----------------------------------------------------------------------------


class HttpClient(AcpClient):
    """`statuses` are those of the POSTs since `initialize`."""

    def __init__(self, session_id: str, http: aiohttp.ClientSession, streams: str) -> None:
        super().__init__(session_id)
        self.http = http
        self.statuses: list[int] = []
        self._streams = streams
        self._group: asyncio.TaskGroup | None = None
        self._open: set[str | None] = set()

    async def initialize(self, group: asyncio.TaskGroup, capabilities: Json) -> None:
        self._group = group
        params = {"protocolVersion": 1, "clientCapabilities": capabilities}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        self._methods[0] = "initialize"
        async with self.http.post("/acp", json=message) as response:
            assert response.status == 200, await response.text()
            self.connection_id = response.headers["Acp-Connection-Id"]
            self.received(await response.json())
        if self._streams != "none":
            await self.listen(None)

    @property
    def headers(self) -> dict[str, str]:
        return {"Acp-Connection-Id": self.connection_id}

    async def post(self, message: Json) -> None:
        session_id = message.get("params", {}).get("sessionId")
        if self._streams == "eager" and session_id:
            await self.listen(session_id)
        async with self.http.post("/acp", json=message, headers=self.headers) as response:
            self.statuses.append(response.status)

    async def listen(self, session_id: str | None, seen: int | str | None = None) -> int:
        """The status of the GET; what comes is taken in from then on. `seen` is what the client
        says to have seen last."""
        if session_id in self._open:
            return 200
        self._open.add(session_id)
        named = {"Acp-Session-Id": session_id} if session_id else {}
        named |= {} if seen is None else {"Last-Event-ID": str(seen)}
        headers = {**self.headers, **named, "Accept": "text/event-stream"}
        response = await self.http.get("/acp", headers=headers)
        assert self._group is not None
        self._group.create_task(self._take_in(session_id, response))
        return response.status

    async def _take_in(self, session_id: str | None, response: aiohttp.ClientResponse) -> None:
        async with response:
            async for line in response.content:
                if line.startswith(b"id: "):
                    self.numbers.append(int(line[4:]))
                if line.startswith(b"data: "):
                    await self._take(json.loads(line[6:]))
        self._open.discard(session_id)

    async def _take(self, message: Json) -> None:
        self.received(message)
        named = message.get("params", message.get("result", {})).get("sessionId")
        if named and self._streams != "none":
            await self.listen(named)


@asynccontextmanager
async def http_session(endpoint: Endpoint) -> AsyncGenerator[aiohttp.ClientSession]:
    connector = aiohttp.UnixConnector(endpoint.path, limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        "http://localhost", connector=connector, timeout=timeout, read_bufsize=2**24
    ) as http:
        yield http


@asynccontextmanager
async def over_http(
    endpoint: Endpoint, capabilities: Json | None = None, streams: str = "eager"
) -> AsyncGenerator[HttpClient]:
    async with http_session(endpoint) as http, asyncio.TaskGroup() as group:
        client = HttpClient(endpoint.session_id, http, streams)
        await client.initialize(group, capabilities or {})
        yield client
        async with http.delete("/acp", headers=client.headers) as response:
            assert response.status in (202, 404)


# --- over a WebSocket ----------------------------------------------------------------------


class WebSocketClient(AcpClient):
    def __init__(self, session_id: str, socket: aiohttp.ClientWebSocketResponse) -> None:
        super().__init__(session_id)
        self.socket = socket

    async def post(self, message: Json) -> None:
        await self.socket.send_str(json.dumps(message))

    async def take_in(self) -> None:
        async for frame in self.socket:
            self.received(json.loads(frame.data))


@asynccontextmanager
async def over_websocket(
    endpoint: Endpoint, capabilities: Json | None = None
) -> AsyncGenerator[WebSocketClient]:
    async with (
        http_session(endpoint) as http,
        http.ws_connect("/acp", max_msg_size=0) as socket,
        asyncio.TaskGroup() as group,
    ):
        client = WebSocketClient(endpoint.session_id, socket)
        group.create_task(client.take_in())
        await client.call("initialize", protocolVersion=1, clientCapabilities=capabilities or {})
        yield client
        await socket.close()
