"""The files of an ACP-C client under test: buffers that sessions read and write through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.acp_client import AcpClient, WebSocketClient, over_websocket
from tests.support.endpoint import Endpoint

Json = dict[str, Any]
Answer = Callable[[Json], Json | None]
"""What is answered to a request: members of the response, or None for never."""

READ, WRITE = "fs/read_text_file", "fs/write_text_file"
FILES: Json = {"fs": {"readTextFile": True, "writeTextFile": True}}
READS: Json = {"fs": {"readTextFile": True, "writeTextFile": False}}
WRITES: Json = {"fs": {"readTextFile": False, "writeTextFile": True}}
BROKEN: Json = {"error": {"code": -32603, "message": "the buffer is\nlocked"}}
GONE: Json = {"error": {"code": -32002, "message": "no such file"}}


class Buffers:
    """An editor that saves nothing by itself. `asked` are the requests so far, oldest first."""

    def __init__(self, texts: dict[Path, str] | None = None) -> None:
        self.texts = texts or {}
        self.asked: list[Json] = []
        self.answers: dict[str, Answer] = {READ: self.read, WRITE: self.write}

    @property
    def methods(self) -> list[str]:
        return [request["method"] for request in self.asked]

    def read(self, params: Json) -> Json:
        path = Path(params["path"])
        if path in self.texts:
            return {"result": {"content": self.texts[path]}}
        if path.exists():
            return {"result": {"content": path.read_bytes().decode()}}
        return GONE

    def write(self, params: Json) -> Json:
        self.texts[Path(params["path"])] = params["content"]
        return {"result": {}}

    @asynccontextmanager
    async def of(self, client: AcpClient) -> AsyncGenerator[None]:
        """While `client` answers from them."""
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(self._serve(client))
            yield
            serving.cancel()

    @asynccontextmanager
    async def open_in(
        self, endpoint: Endpoint, offers: Json = FILES
    ) -> AsyncGenerator[WebSocketClient]:
        """A client in the session that answers from them."""
        async with over_websocket(endpoint, offers) as client, self.of(client):
            await client.new()
            yield client

    async def _serve(self, client: AcpClient) -> None:
        async for message in client.each():
            if "id" in message and message.get("method") in self.answers:
                self.asked.append(message)
                answer = self.answers[message["method"]](message["params"])
                if answer is not None:
                    await client.post({"jsonrpc": "2.0", "id": message["id"], **answer})
