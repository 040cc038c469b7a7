"""MCP servers as a session has them: offered, asked about, called, and gone with the session."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from session_worker.demo_model import Reply, tool_use
from tests.support.control import CallFailed
from tests.support.daemon import Daemon
from tests.support.processes import eventually
from tests.support.scripted import FINE, Scripted, scripted_session

STUB = str(Path(__file__).parents[1] / "support" / "mcp_stub.py")


def stub(*mode: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", STUB, *mode], **more}


def call(name: str, **given: Any) -> Reply:
    return Reply([tool_use(name, given)])


def result_of(scripted: Scripted) -> dict[str, Any]:
    return scripted.sent[-1]["content"][0]


def servers(scripted: Scripted) -> dict[str, dict[str, Any]]:
    path = f"/sessions/{scripted.endpoint.session_id}/mcp"
    return {s["name"]: s for s in scripted.endpoint.get(path)[1]["servers"]}


@contextmanager
def settled_session(daemon: Daemon, work: Path, **params: Any) -> Iterator[Scripted]:
    """Its servers are there, or have failed: a prompt waits only for so long."""
    with scripted_session(daemon, work, **params) as scripted:

        def settled() -> bool:
            under_way = ("pending", "connecting")
            return not any(each["state"] in under_way for each in servers(scripted).values())

        eventually(settled, "servers are there or not")
        yield scripted


def stubs_below(scripted: Scripted) -> list[psutil.Process]:
    shim = psutil.Process(scripted.endpoint.get("/healthz")[1]["pid"]).parent()
    return [p for p in shim.children(recursive=True) if STUB in p.cmdline()]


def test_a_tool_of_a_server_is_offered_called_and_its_input_checked(
    daemon: Daemon, work: Path
) -> None:
    with settled_session(daemon, work, mcp_servers={"stub": stub()}) as scripted:
        scripted.prompt(call("stub__echo", text="hi"), call("stub__echo", text=7), FINE)
        offered = [tool["name"] for tool in scripted.bodies[0]["tools"]]
        assert "bash" in offered and "stub__echo" in offered
        good, bad = (body["messages"][-1]["content"][0] for body in scripted.bodies[1:])
        assert "hi" in json.dumps(good["content"]) and "is_error" not in good
        assert bad["is_error"] and "input is invalid" in bad["content"]
        assert servers(scripted)["stub"]["state"] == "connected"
        [process] = stubs_below(scripted)
        daemon.call("session.destroy", session_id=scripted.endpoint.session_id)
        assert not process.is_running()


def test_a_call_of_a_server_is_asked_about(daemon: Daemon, work: Path) -> None:
    with settled_session(daemon, work, mode="ask", mcp_servers={"stub": stub()}) as scripted:
        run_id = scripted.start(call("stub__echo", text="hi"), FINE)
        path = f"/sessions/{scripted.endpoint.session_id}/permissions"
        [question] = eventually(lambda: scripted.endpoint.get(path)[1]["pending"], "a question")
        assert question["_meta"]["sidecar"]["rules"] == ["mcp(stub__echo)"]
        answer = {"option_id": "allow_session"}
        assert scripted.endpoint.post(f"{path}/{question['request_id']}", answer)[0] == 200
        assert scripted.ended(run_id)["status"] == "completed"
        assert "hi" in json.dumps(result_of(scripted)["content"])
        scripted.prompt(call("stub__echo", text="again"), FINE)
        assert "again" in json.dumps(result_of(scripted)["content"])


def test_servers_of_every_ill_kind_cost_a_session_nothing_but_their_tools_and_are_named(
    daemon: Daemon, work: Path
) -> None:
    kinds = {
        "missing": {"command": str(work / "no-such-program")},
        "hanging": stub("hang", startup_timeout_s=1),
        "flooding": stub("flood"),
        "talking": stub("junk"),
        "fine": stub(),
    }
    with settled_session(daemon, work, mcp_servers=kinds) as scripted:
        words = [str(number) for number in range(50)]
        fifty = [tool_use("fine__echo", {"text": word}) for word in words]
        scripted.prompt(
            call("flooding__echo", text="hi"),
            call("talking__echo", text="hi"),
            call("fine__bytes", n=20 << 20),
            Reply(fifty),
            call("fine__rename"),
            FINE,
        )
        results = [body["messages"][-1]["content"] for body in scripted.bodies[1:]]
        flooding, talking, large, many, _ = results
        assert "hi" in json.dumps(flooding) and "hi" in json.dumps(talking)
        assert "20MB, too long to show" in json.dumps(large)
        assert [each["content"] for each in many] == words
        # the server's word that its list has changed is not a part of its answer to the call
        eventually(lambda: "fine__renamed" in servers(scripted)["fine"]["tools"], "the new list")
        scripted.completes()
        offered = {tool["name"] for tool in scripted.bodies[-1]["tools"]}
        assert "fine__renamed" in offered and "fine__never" not in offered
        titles = " ".join(notice["title"] for notice in scripted.events("notice"))
        for told in ("missing is failed", "hanging is failed", "gone: fine__never"):
            assert told in titles, titles


def test_a_prompt_ends_without_a_required_server_and_goes_on_when_it_is_there(
    daemon: Daemon, work: Path
) -> None:
    program = work / "program"
    required = {"command": str(program), "args": ["-I", STUB], "required": True}
    with scripted_session(daemon, work, mcp_servers={"stub": required}) as scripted:
        error = scripted.prompt()["result"]["error"]
        assert error["type"] == "mcp_server_required"
        assert "stub is failed: there is no" in error["message"]
        program.symlink_to(sys.executable)
        path = f"/sessions/{scripted.endpoint.session_id}/mcp/stub/restart"
        assert scripted.endpoint.post(path)[0] == 200
        eventually(lambda: servers(scripted)["stub"]["state"] == "connected", "it was started")
        scripted.prompt(call("stub__echo", text="hi"), FINE)
        assert "hi" in json.dumps(result_of(scripted)["content"])
        [process] = stubs_below(scripted)
        process.kill()
        eventually(lambda: servers(scripted)["stub"]["state"] != "connected", "it is missed")
        scripted.prompt(call("stub__echo", text="hi"), FINE)  # waits until it is back
        assert "hi" in json.dumps(result_of(scripted)["content"])


def test_nobody_writes_the_configuration_of_a_projects_servers_unasked(
    daemon: Daemon, work: Path
) -> None:
    (work / "link").symlink_to(".mcp.json")
    with scripted_session(daemon, work, mode="auto") as scripted:
        for path in (".mcp.json", "link"):
            write = tool_use("write_file", {"path": path, "content": "{}"})
            run_id = scripted.start(Reply([write]))
            eventually(lambda: scripted.events("permission_requested"), "a question")
            scripted.cancel(run_id)
        assert not (work / ".mcp.json").exists()


def test_a_server_that_dies_in_a_call_is_an_error_of_that_call(daemon: Daemon, work: Path) -> None:
    with settled_session(daemon, work, mcp_servers={"stub": stub()}) as scripted:
        scripted.prompt(call("stub__die"), FINE)
        assert result_of(scripted)["is_error"]

        def back() -> bool:
            return servers(scripted)["stub"]["state"] == "connected"

        eventually(back, "it was started again")
        scripted.prompt(call("stub__echo", text="hi"), FINE)
        assert "hi" in json.dumps(result_of(scripted)["content"])


def test_a_server_of_a_project_waits_for_trust_and_approval(daemon: Daemon, work: Path) -> None:
    (work / ".mcp.json").write_text(json.dumps({"mcpServers": {"stub": stub()}}))
    with scripted_session(daemon, work) as scripted:
        scripted.prompt(FINE)
        assert "stub__echo" not in [tool["name"] for tool in scripted.bodies[-1]["tools"]]
        assert stubs_below(scripted) == []


@pytest.mark.parametrize(
    ("name", "entry", "param"),
    [
        ("odd", {}, "odd"),
        ("odd", {"command": 7}, "odd.command"),
        ("odd", {"command": "x", "disabled": True}, "odd.disabled"),
        ("a b", {"command": "x"}, "'a b'"),
    ],
)
def test_a_server_that_makes_no_sense_is_refused_by_its_name_and_member(
    daemon: Daemon, work: Path, name: str, entry: dict[str, Any], param: str
) -> None:
    servers = {"fine": stub(), name: entry}
    with pytest.raises(CallFailed) as refused:
        daemon.create(work, mcp_servers=servers)
    assert refused.value.code == "invalid_params"
    assert refused.value.error["data"]["param"] == f"mcp_servers.{param}"


def test_a_server_gets_no_key_and_its_own_variables(daemon: Daemon, work: Path) -> None:
    with settled_session(daemon, work, mcp_servers={"stub": stub(env={"OWN": "yes"})}) as scripted:
        scripted.prompt(call("stub__env"), FINE)
        shown = json.dumps(result_of(scripted)["content"])
        assert "OWN" in shown and "sk-test" not in shown and "ANTHROPIC" not in shown
        assert os.environ["PATH"] in shown
