"""The terminals of an ACP-C client under test: real processes, without the terminal."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.support.acp_client import AcpClient

Json = dict[str, Any]
TERMINAL: Json = {"terminal": True}


@dataclass
class _Terminal:
    process: asyncio.subprocess.Process
    limit: int
    output: bytes = b""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self) -> None:
        assert self.process.stdout is not None
        while chunk := await self.process.stdout.read(2**16):
            self.output += chunk
        await self.process.wait()
        self.ended.set()

    @property
    def exit(self) -> Json:
        code = self.process.returncode
        if code is not None and code < 0:
            return {"exitCode": None, "signal": signal.Signals(-code).name}
        return {"exitCode": code}

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Terminals:
    """`asked` are the requests so far; methods in `mute` are never answered."""

    def __init__(self) -> None:
        self.asked: list[Json] = []
        self.mute: set[str] = set()
        self._open: dict[str, _Terminal] = {}
        self._group: asyncio.TaskGroup

    @property
    def methods(self) -> list[str]:
        return [request["method"].removeprefix("terminal/") for request in self.asked]

    @asynccontextmanager
    async def of(self, client: AcpClient) -> AsyncGenerator[None]:
        """While `client` has them; all must have been released at the end."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            serving = group.create_task(self._serve(client))
            yield
            serving.cancel()
        assert not self._open, "terminals that were not released"

    async def _serve(self, client: AcpClient) -> None:
        async for message in client.each():
            if "id" in message and message.get("method", "").startswith("terminal/"):
                self.asked.append(message)
                if message["method"].removeprefix("terminal/") not in self.mute:
                    self._group.create_task(self.answer(client, message))

    async def answer(self, client: AcpClient, request: Json) -> None:
        params = request["params"]
        match request["method"]:
            case "terminal/create":
                result = await self._create(params)
            case "terminal/wait_for_exit":
                terminal = self._open[params["terminalId"]]
                await terminal.ended.wait()
                result = terminal.exit
            case "terminal/output":
                terminal = self._open[params["terminalId"]]
                kept = terminal.output[-terminal.limit :]
                is_cut = len(kept) < len(terminal.output)
                result = {"output": kept.decode(), "truncated": is_cut}
                result |= {"exitStatus": terminal.exit} if terminal.ended.is_set() else {}
            case "terminal/kill":
                terminal = self._open[params["terminalId"]]
                terminal.kill()
                await terminal.ended.wait()
                result = {}
            case _:
                self._open.pop(params["terminalId"]).kill()
                result = {}
        await client.reply(request, result)

    async def _create(self, params: Json) -> Json:
        process = await asyncio.create_subprocess_exec(
            params["command"],
            *params["args"],
            cwd=params["cwd"],
            env={pair["name"]: pair["value"] for pair in params["env"]},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        terminal = _Terminal(process, params["outputByteLimit"])
        self._group.create_task(terminal.read())
        terminal_id = f"terminal-{process.pid}"
        self._open[terminal_id] = terminal
        return {"terminalId": terminal_id}
