"""`sidecarctl acp` as an editor starts it: JSON lines, and nothing of anybody's SDK."""

from __future__ import annotations

import itertools
import json
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Cli
from tests.support.daemon import environment
from tests.support.processes import WAIT_S

Json = dict[str, Any]
LEAVE_S = 30
"""For an agent that is told to leave; it needs a second at most."""


class StdioAgent:
    """The editor's side."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.heard: list[Json] = []
        """Every message so far that was read, in order."""
        self._ids = itertools.count(100)
        self._lines: queue.Queue[bytes] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def next(self) -> Json:
        """The next message. Raises EOFError behind the last one."""
        try:
            line = self._lines.get(timeout=WAIT_S)
        except queue.Empty:
            pytest.fail(f"the agent says nothing; so far: {self.heard}")
        if not line:
            raise EOFError
        message: Json = json.loads(line)
        self.heard.append(message)
        return message

    def until(self, wanted: Callable[[Json], Any]) -> Json:
        """The first message from here on for which `wanted` is true."""
        while not wanted(message := self.next()):
            pass
        return message

    def send_raw(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message: Json) -> None:
        self.send_raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def ask(self, method: str, **params: Any) -> int:
        """The id of a request whose answer is read later."""
        request_id = next(self._ids)
        self.send({"id": request_id, "method": method, "params": params})
        return request_id

    def answered(self, request_id: Any) -> Json:
        return self.until(lambda m: "method" not in m and m["id"] == request_id)

    def call(self, method: str, **params: Any) -> Json:
        """The result."""
        answer = self.answered(self.ask(method, **params))
        assert "error" not in answer, answer
        return answer["result"]

    def refused(self, method: str, **params: Any) -> Json:
        """The error."""
        answer = self.answered(self.ask(method, **params))
        assert "result" not in answer, answer
        return answer["error"]

    def tell(self, method: str, **params: Any) -> None:
        self.send({"method": method, "params": params})

    def answer(self, request: Json, result: Json) -> None:
        self.send({"id": request["id"], "result": result})

    # --- the Agent Client Protocol ---------------------------------------------------------

    def initialize(self, **capabilities: Any) -> Json:
        return self.call(
            "initialize",
            protocolVersion=1,
            clientCapabilities=capabilities,
            clientInfo={"name": "test", "version": "1"},
        )

    def new(self, cwd: Path) -> str:
        """The id of a new session."""
        return self.call("session/new", cwd=str(cwd), mcpServers=[])["sessionId"]

    def ask_prompt(self, session_id: str, text: str) -> int:
        block = {"type": "text", "text": text}
        return self.ask("session/prompt", sessionId=session_id, prompt=[block])

    def prompt(self, session_id: str, text: str) -> tuple[str, str]:
        """The stop reason, and what the agent said meanwhile."""
        before = len(self.heard)
        answer = self.answered(self.ask_prompt(session_id, text))
        said = "".join(texts(self.heard[before:], session_id))
        return answer["result"]["stopReason"], said

    # --- the end ---------------------------------------------------------------------------

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def left(self) -> tuple[int, str]:
        """The exit code and stderr of an agent that leaves."""
        code = self.process.wait(LEAVE_S)
        assert self.process.stderr is not None
        return code, self.process.stderr.read().decode()


def texts(heard: list[Json], session_id: str, kind: str = "agent_message_chunk") -> Iterator[str]:
    """The texts of the updates of this kind."""
    for message in heard:
        if message.get("method") == "session/update":
            params = message["params"]
            if params["sessionId"] == session_id and params["update"]["sessionUpdate"] == kind:
                yield params["update"]["content"]["text"]


@contextmanager
def stdio_agent(cli: Cli, *options: str, **environ: str) -> Iterator[StdioAgent]:
    """One that has left at the end."""
    with subprocess.Popen(
        cli.argv("acp", *options),
        env=environment(cli.home, **environ),
        cwd=cli.cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        agent = StdioAgent(process)
        try:
            yield agent
        finally:
            process.terminate()
            process.wait(LEAVE_S)
            agent.reader.join()
