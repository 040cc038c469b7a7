"""The reference servers of the Model Context Protocol, unmodified, as a session uses them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from session_worker.demo_model import Reply, tool_use
from tests.compat.installed import NODE, installed
from tests.support.daemon import Daemon
from tests.support.processes import eventually
from tests.support.scripted import FINE, Scripted, scripted_session

Json = dict[str, Any]
TRANSPORTS = ("stdio", "http")


def program(name: str) -> str:
    return str(installed(NODE, f"node_modules/@modelcontextprotocol/{name}/dist/index.js"))


class Remote:
    """server-everything over streamable HTTP: on a port of the system's choice, then always there.
    It is up again as it was, but for what it had in memory."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def server(self) -> Json:
        return {"type": "http", "url": f"http://127.0.0.1:{self._port}/mcp"}

    def start(self) -> None:
        self._process = subprocess.Popen(
            ["node", program("server-everything"), "streamableHttp"],
            env={**os.environ, "PORT": str(self._port)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        process = psutil.Process(self._process.pid)

        def port() -> int | None:
            listening = [c for c in process.net_connections() if c.status == psutil.CONN_LISTEN]
            return listening[0].laddr.port if listening else None

        self._port = eventually(port, "it listens")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="module")
def remote() -> Iterator[Remote]:
    remote = Remote()
    remote.start()
    yield remote
    remote.kill()


@pytest.fixture(params=TRANSPORTS)
def everything(request: pytest.FixtureRequest) -> Json:
    """server-everything, as `mcp_servers` has it."""
    if request.param == "stdio":
        return {"command": "node", "args": [program("server-everything"), "stdio"]}
    return request.getfixturevalue("remote").server


@contextmanager
def session_with(daemon: Daemon, work: Path, **servers: Json) -> Iterator[Scripted]:
    with scripted_session(daemon, work, mcp_servers=servers) as scripted:
        eventually(lambda: states(scripted) == {"connected"}, "all are connected")
        yield scripted


def states(scripted: Scripted) -> set[str]:
    path = f"/sessions/{scripted.endpoint.session_id}/mcp"
    return {server["state"] for server in scripted.endpoint.get(path)[1]["servers"]}


def call(scripted: Scripted, tool: str, **given: Any) -> Json:
    """The result that the model reads."""
    scripted.prompt(Reply([tool_use(tool, given)]), FINE)
    return scripted.sent[-1]["content"][0]


def shown(result: Json) -> str:
    return json.dumps(result["content"])


def test_every_kind_of_result_reaches_the_model(
    daemon: Daemon, work: Path, everything: Json
) -> None:
    with session_with(daemon, work, all=everything) as scripted:
        echo = call(scripted, "all__echo", message="héllo")
        assert (echo["content"], "is_error" in echo) == ("Echo: héllo", False)
        assert "is 42" in shown(call(scripted, "all__get-sum", a=19, b=23))
        kinds = [block["type"] for block in call(scripted, "all__get-tiny-image")["content"]]
        assert kinds == ["text", "image", "text"]
        text = call(scripted, "all__get-resource-reference", resourceType="Text", resourceId=1)
        assert "[resource demo://resource/dynamic/text/1" in shown(text)
        blob = call(scripted, "all__get-resource-reference", resourceType="Blob", resourceId=1)
        assert "saved to" in shown(blob)
        assert shown(call(scripted, "all__get-resource-links", count=2)).count("[resource ") == 2
        weather = call(scripted, "all__get-structured-content", location="Chicago")
        assert weather["content"].count("Light rain") == 1
        offered = {tool["name"] for tool in scripted.bodies[-1]["tools"]}
        later = "all__simulate-research-query"  # added, with a word, once it is initialized
        assert {"bash", "all__echo", later} <= offered


def test_what_fails_is_an_error_that_says_why(daemon: Daemon, work: Path, everything: Json) -> None:
    with session_with(daemon, work, all=everything) as scripted:
        ours = call(scripted, "all__get-sum", a="one", b=2)
        assert ours["is_error"] and "its input is invalid" in shown(ours)
        theirs = call(scripted, "all__get-resource-reference", resourceType="Text", resourceId=0.5)
        assert theirs["is_error"] and "finite positive integer" in shown(theirs)
        assert call(scripted, "all__echo", message="hi")["content"] == "Echo: hi"


def test_progress_is_shown_while_a_call_runs(daemon: Daemon, work: Path, everything: Json) -> None:
    with session_with(daemon, work, all=everything) as scripted:
        slow = call(scripted, "all__trigger-long-running-operation", duration=0.6, steps=2)
        assert "operation completed" in shown(slow)
        assert "1/2\n" in [output["text"] for output in scripted.events("tool_output")]


def test_a_cancelled_call_leaves_the_connection_whole(
    daemon: Daemon, work: Path, everything: Json
) -> None:
    with session_with(daemon, work, all=everything) as scripted:
        given = {"duration": 60, "steps": 600}
        run = scripted.start(Reply([tool_use("all__trigger-long-running-operation", given)]))
        eventually(lambda: scripted.events("tool_output", run), "it makes progress")
        scripted.cancel(run)
        assert call(scripted, "all__echo", message="hi")["content"] == "Echo: hi"


def test_a_long_text_goes_to_a_file(daemon: Daemon, work: Path, everything: Json) -> None:
    with session_with(daemon, work, all=everything) as scripted:
        result = call(scripted, "all__echo", message="x" * 150_000)["content"]
        assert len(result) < 3000
        where = Path(result.partition("the whole: ")[2].partition(";")[0])
        assert where.stat().st_size == 150_006
        assert call(scripted, "read_file", path=str(where))["content"].lstrip().startswith("1\t")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_server_that_was_killed_comes_back_and_the_session_goes_on(
    daemon: Daemon, work: Path, transport: str
) -> None:
    remote = Remote()
    if transport == "http":
        remote.start()
    stdio: Json = {"command": "node", "args": [program("server-everything"), "stdio"]}
    try:
        server = stdio if transport == "stdio" else remote.server
        with session_with(daemon, work, all=server) as scripted:
            assert call(scripted, "all__echo", message="hi")["content"] == "Echo: hi"
            if transport == "http":
                remote.kill()
                remote.start()
            else:
                node_below(scripted).kill()

            def answers() -> bool:
                return call(scripted, "all__echo", message="hi")["content"] == "Echo: hi"

            eventually(answers, "it is there again")
    finally:
        remote.kill()


def node_below(scripted: Scripted) -> psutil.Process:
    worker = psutil.Process(scripted.endpoint.get("/healthz")[1]["pid"])
    (node,) = [p for p in worker.children(recursive=True) if p.name() == "node"]
    return node


def test_the_filesystem_server_works_in_its_directory_and_nowhere_else(
    daemon: Daemon, work: Path
) -> None:
    allowed = work.with_name("allowed")
    allowed.mkdir()
    secret = work / "secret"
    secret.write_text("s3cret")
    (allowed / "link").symlink_to(secret)
    server: Json = {"command": "node", "args": [program("server-filesystem"), str(allowed)]}
    with session_with(daemon, work, fs=server) as scripted:
        note = str(allowed / "note.txt")
        wrote = call(scripted, "fs__write_file", path=note, content="one\ntwo\n")
        assert "is_error" not in wrote and (allowed / "note.txt").read_text() == "one\ntwo\n"
        assert shown(call(scripted, "fs__read_text_file", path=note, head=1)) == '"one"'
        assert "note.txt" in shown(call(scripted, "fs__list_directory", path=str(allowed)))
        for path in (secret, allowed / "link", allowed / "../work/secret"):
            refused = call(scripted, "fs__read_text_file", path=str(path))
            assert refused["is_error"] and "Access denied" in shown(refused)
            assert "s3cret" not in shown(refused)
        outside = call(scripted, "fs__write_file", path=str(work / "made"), content="")
        assert outside["is_error"] and not (work / "made").exists()
