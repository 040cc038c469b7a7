"""Every wrong thing said to the daemon or a session gets a typed answer, and harms nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.control import CallFailed, Control
from tests.support.daemon import Daemon, refused_daemon
from tests.support.endpoint import Endpoint, run_request
from tests.support.processes import eventually

MIB = 1024 * 1024


def refusal(daemon: Daemon, method: str, **params: Any) -> dict[str, Any]:
    with pytest.raises(CallFailed) as failure:
        daemon.call(method, **params)
    assert failure.value.error["data"]["hint"]
    return failure.value.error


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("session.destory", {}, "method_not_found"),
        ("session.create", {}, "invalid_params"),
        ("session.create", {"cwd": "relative"}, "invalid_params"),
        ("session.create", {"cwd": "/nonexistent/dir"}, "invalid_params"),
        ("session.create", {"cwd": "/etc/passwd"}, "invalid_params"),
        ("session.create", {"cwd": "/" + "x" * 300}, "invalid_params"),
        ("session.create", {"cwd": "/tmp/a\0b"}, "invalid_params"),
        ("session.create", {"cwd": "/tmp", "mood": "good"}, "invalid_params"),
        ("session.create", {"cwd": "/tmp", "mode": "yolo"}, "invalid_params"),
        ("session.create", {"cwd": "/tmp", "ring_bytes": 100_000}, "invalid_params"),
        ("session.create", {"cwd": "/tmp", "name": "bad\nname"}, "invalid_params"),
        ("session.create", {"cwd": "/tmp", "env": {"A": 1}}, "invalid_params"),
        ("session.create", {"cwd": "/tmp", "env": {"A=B": "x"}}, "invalid_params"),
        ("session.create", {"cwd": "/tmp", "limits": {"tokens": 0}}, "invalid_params"),
        ("session.create", {"cwd": "/tmp", "limits": {"memory_bytes": 5}}, "invalid_params"),
        ("session.status", {"session_id": "nothing-like-it"}, "session_not_found"),
        ("session.status", {"session_id": 5}, "invalid_params"),
        ("session.output", {"session_id": "nothing-like-it"}, "session_not_found"),
        ("session.list", {"limit": 0}, "invalid_params"),
        ("session.unsubscribe", {"subscription": "x"}, "invalid_params"),
    ],
)
def test_a_wrong_call_is_refused_with_its_code_and_a_hint(
    daemon: Daemon, method: str, params: dict[str, Any], code: str
) -> None:
    assert refusal(daemon, method, **params)["data"]["code"] == code
    assert daemon.call("sidecar.ping") == {}


def test_the_error_of_a_missing_cwd_names_it(daemon: Daemon) -> None:
    error = refusal(daemon, "session.create")
    assert error["code"] == -32602
    assert "cwd" in error["message"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{nonsense}\n", -32700),
        (b"\xff\xfe\n", -32700),
        (b'"text"\n', -32600),
        (b"[]\n", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"sidecar.ping"}\n', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"sidecar.ping","params":[1]}\n', -32602),
        (b'{"jsonrpc":"2.0","id":true,"method":"sidecar.ping"}\n', -32600),
        (b"[" * 100_000 + b"\n", -32700),
    ],
)
def test_a_malformed_line_is_answered_and_the_connection_goes_on(
    daemon: Daemon, line: bytes, code: int
) -> None:
    control = Control(daemon.socket)
    control.send_raw(line)
    assert control.receive()["error"]["code"] == code
    assert control.call("sidecar.ping") == {}
    control.close()


def test_a_line_of_nine_mebibytes_ends_its_connection_with_an_answer(daemon: Daemon) -> None:
    control = Control(daemon.socket)
    control.send_raw(b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * (9 * MIB) + b'"}\n')
    assert control.receive()["error"]["data"]["code"] == "invalid_request"
    with pytest.raises((EOFError, ConnectionResetError)):
        control.receive()
    control.close()
    assert daemon.call("sidecar.ping") == {}


def test_a_batch_is_answered_item_by_item_also_with_a_bad_one(daemon: Daemon) -> None:
    control = Control(daemon.socket)
    control.send(
        [
            {"jsonrpc": "2.0", "id": 1, "method": "sidecar.ping"},
            {"jsonrpc": "2.0", "id": 2, "method": "no.such"},
            7,
            {"jsonrpc": "2.0", "method": "sidecar.ping"},
        ]
    )
    replies: Any = control.receive()
    assert [reply["id"] for reply in replies] == [1, 2, None]
    assert [reply.get("error", {}).get("code") for reply in replies] == [None, -32601, -32600]
    control.close()


def test_a_response_from_a_peer_is_not_answered(daemon: Daemon) -> None:
    control = Control(daemon.socket)
    control.send({"jsonrpc": "2.0", "id": 1, "result": {}})
    assert control.call("sidecar.ping") == {}
    assert control.notifications == []
    control.close()


def test_a_second_daemon_in_the_same_home_is_refused_by_name(daemon: Daemon) -> None:
    second = refused_daemon(daemon.home)
    assert second.returncode == 1
    assert "already runs" in second.stderr
    assert f"pid {daemon.call('sidecar.status')['pid']}" in second.stderr
    assert "try:" in second.stderr


def test_two_live_sessions_cannot_share_a_name_and_an_ambiguous_prefix_is_told(
    daemon: Daemon, work: Path
) -> None:
    daemon.create(work, name="twin")
    error = refusal(daemon, "session.create", cwd=str(work), name="twin")
    assert error["code"] == -32011


def test_a_name_is_free_again_after_its_session_has_ended(daemon: Daemon, work: Path) -> None:
    daemon.create(work, name="again")
    daemon.call("session.destroy", session_id="again")
    assert daemon.create(work, name="again")["state"] == "idle"
    assert daemon.call("session.status", session_id="again")["state"] == "idle"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{nonsense", 422),
        (b"[]", 422),
        (b"\xff\xfe", 422),
        (run_request("   "), 422),
        (run_request("hi") | {"input": []}, 422),
        (run_request("hi") | {"agent_name": "other"}, 404),
        (run_request("hi") | {"mode": "later"}, 422),
        (run_request("hi") | {"input": [{"role": "agent", "parts": [{"content": "x"}]}]}, 422),
        (run_request("hi") | {"input": [{"role": "user", "parts": [{"content_url": "x"}]}]}, 422),
    ],
)
def test_a_wrong_run_request_is_refused_in_the_protocols_own_shape(
    daemon: Daemon, work: Path, body: Any, status: int
) -> None:
    endpoint = daemon.session(work)
    got, error = endpoint.post("/runs", body)
    assert got == status
    assert set(error) == {"code", "message"}
    assert endpoint.prompt("list the files here")["status"] == "completed"


def test_other_wrong_requests_to_the_endpoint_are_refused(daemon: Daemon, work: Path) -> None:
    endpoint = daemon.session(work)
    sid = endpoint.session_id
    events = f"/sessions/{sid}/events"
    for path, status in [
        ("/nowhere", 404),
        ("/runs/none", 404),
        ("/agents/other", 404),
        ("/sessions/other/events", 404),
        (f"{events}?after=999999999", 400),
        (f"{events}?after=-1", 400),
        (f"{events}?after=%C2%B2", 400),
        (f"/sessions/{sid}/transcript?format=pdf", 400),
    ]:
        assert endpoint.get(path)[0] == status, path
    assert endpoint.get("/healthz", Origin="http://evil.example")[0] == 403
    assert endpoint.post("/runs", run_request("hi"), **{"Content-Type": "text/plain"})[0] == 415
    assert endpoint.post("/healthz")[0] == 405
    assert endpoint.get("/healthz")[0] == 200


def test_a_body_over_the_limit_is_refused_and_the_session_lives(daemon: Daemon, work: Path) -> None:
    endpoint = daemon.session(work)
    status, error = endpoint.post("/runs", json.dumps(run_request("x" * 17 * MIB)).encode())
    assert (status, error["code"]) == (413, "too_large")
    assert endpoint.get("/healthz")[0] == 200


def test_a_home_whose_directory_others_may_enter_is_refused(home: Path) -> None:
    (home / "run").mkdir(mode=0o755)
    refused = refused_daemon(home)
    assert refused.returncode == 1
    assert "chmod 700" in refused.stderr


def test_a_model_address_where_nobody_answers_is_tried_again_until_it_is_cancelled(
    daemon: Daemon, work: Path
) -> None:
    endpoint = Endpoint(daemon.create(work, env={"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}))
    run = endpoint.prompt("hello", "async")
    retry = eventually(
        lambda: [e["data"] for e in endpoint.events() if e["type"] == "retry"], "a retry is told"
    )[0]
    assert (retry["attempt"], retry["reason"]) == (1, "connection_error")
    assert endpoint.post(f"/sessions/{endpoint.session_id}/cancel")[0] == 200
    assert endpoint.get(f"/runs/{run['run_id']}")[1]["status"] == "cancelled"
    assert endpoint.get("/healthz")[0] == 200


def test_a_model_address_that_is_none_is_an_error_of_the_run_and_the_session_lives(
    daemon: Daemon, work: Path
) -> None:
    endpoint = Endpoint(daemon.create(work, env={"ANTHROPIC_BASE_URL": "nonsense"}))
    run = endpoint.prompt("hello")
    assert (run["status"], run["result"]["stop_reason"]) == ("failed", "error")
    assert run["result"]["error"]["type"] == "client_error"
    assert endpoint.get("/healthz")[0] == 200
