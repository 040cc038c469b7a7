"""The SDKs of the Agent Client Protocol as clients of a session (clients/acp_c.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.acp_schema import check_all
from tests.support.cli import Cli
from tests.support.daemon import Daemon, environment
from tests.support.stdio_agent import StdioAgent

Json = dict[str, Any]
TCP = ("python http", "python websocket", "typescript http", "typescript websocket")
PYTHON = ("python http", "python websocket", "python unix", "python stdio")
KINDS = (*TCP, "python unix", "python stdio")


class Editors:
    """Clients of one session in mode `ask`, one after the other; over stdio they make it."""

    def __init__(
        self, kind: str, sdks: Callable[[str], StdioAgent], daemon: Daemon, work: Path
    ) -> None:
        self.sdk, self.transport = kind.split()
        self._sdks = sdks
        self._daemon = daemon
        self._work = work
        self._endpoint: Json = {}

    @contextmanager
    def open(self, **capabilities: Any) -> Iterator[StdioAgent]:
        """One that has initialized."""
        with self.start() as editor:
            assert editor.initialize(**capabilities)["agentCapabilities"]["loadSession"]
            yield editor

    @contextmanager
    def start(self, **headers: str) -> Iterator[StdioAgent]:
        """One that has disconnected at the end, if it has not been killed, and was told nothing
        but what the schema allows."""
        place = self._place(headers)
        editor = self._sdks(self.sdk)
        editor.heard.clear()
        try:
            editor.call("connect", **place)
            yield editor
            if editor.process.poll() is None:
                editor.call("disconnect")
        except BaseException:
            editor.process.kill()
            editor.process.wait()
            raise
        check_all(_wire(editor, "said"), heard(editor))

    def _place(self, headers: dict[str, str]) -> Json:
        if self.transport == "stdio":
            cli = Cli(self._daemon.home, self._work, ("--no-start",))
            argv = cli.argv("acp", "--mode", "ask")
            return {"argv": argv, "env": environment(self._daemon.home)}
        if not self._endpoint:
            tcp = self.transport != "unix"
            self._endpoint = self._daemon.create(self._work, mode="ask", tcp=tcp)["endpoint"]
        if self.transport == "unix":
            return {"url": "http://localhost/acp", "socket": self._endpoint["socket"]}
        url: str = f"{self._endpoint['url']}/acp"
        url = url.replace("http", "ws", 1) if self.transport == "websocket" else url
        bearer = {"Authorization": f"Bearer {self._endpoint['token']}"}
        return {"url": url, "headers": bearer | headers}


def heard(editor: StdioAgent) -> list[Json]:
    """What came over the wire, as far as the test has read."""
    return _wire(editor, "heard")


def _wire(editor: StdioAgent, side: str) -> list[Json]:
    wire = [m["params"] for m in editor.heard if m.get("method") == "wire"]
    return [m[side] for m in wire if side in m]
