"""Whatever is sent to a session's endpoint, its memory stays flat and others are served."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from session_worker.http.connection import CONNECTIONS, REFUSALS
from tests.support.daemon import Daemon
from tests.support.endpoint import run_request
from tests.support.processes import eventually
from tests.support.raw_http import RawHttp, receive

MIB = 1024 * 1024
HUGE_BYTES = 100 * MIB
JSON_TYPE = {"Content-Type": "application/json"}


def peak_bytes(info: dict[str, Any]) -> int:
    """The most memory that the worker has had at any time."""
    lines = Path(f"/proc/{info['pid']}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.fixture
def info(daemon: Daemon, work: Path) -> dict[str, Any]:
    return daemon.create(work, tcp=True)


@pytest.fixture(params=["unix", "tcp"])
def http(request: pytest.FixtureRequest, info: dict[str, Any]) -> RawHttp:
    return RawHttp.over_unix(info) if request.param == "unix" else RawHttp.over_tcp(info)


def test_a_body_of_100_mb_is_refused_unread(http: RawHttp, info: dict[str, Any]) -> None:
    http.post("/runs", run_request("warm up"))
    before = peak_bytes(info)
    length = {"Content-Length": str(HUGE_BYTES), **JSON_TYPE}
    with http.connect() as sock:
        sock.sendall(http.compose("POST /runs", **length))
        assert sock.recv(64).startswith(b"HTTP/1.1 413 ")
    sent = http.ask("POST /runs", b"x" * HUGE_BYTES, **length)
    assert (sent.status, sent.json["code"]) == (413, "too_large")
    assert peak_bytes(info) - before < 8 * MIB
    assert http.ask().status == 200


def test_a_body_of_unknown_length_is_read_up_to_the_limit(
    http: RawHttp, info: dict[str, Any]
) -> None:
    http.post("/runs", run_request("warm up"))
    before = peak_bytes(info)
    chunk = b"%x\r\n%b\r\n" % (MIB, b"x" * MIB)
    chunked = {"Transfer-Encoding": "chunked", "Content-Length": "", **JSON_TYPE}
    answer = http.ask("POST /runs", chunk * (HUGE_BYTES // MIB) + b"0\r\n\r\n", **chunked)
    assert (answer.status, answer.json["code"]) == (413, "too_large")
    assert peak_bytes(info) - before < HUGE_BYTES / 2
    assert http.ask().status == 200


def test_a_body_that_nobody_may_send_is_not_read(info: dict[str, Any]) -> None:
    stranger = RawHttp.over_tcp(info).without_token()
    before = peak_bytes(info)
    assert stranger.ask("POST /runs", b"x" * HUGE_BYTES, **JSON_TYPE).status == 401
    assert peak_bytes(info) - before < 8 * MIB


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"x" * MIB,
        b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * MIB,
        b"GET / HTTP/1.1\r\nHost: h\r\n" + b"X: y\r\n" * 100_000,
    ],
    ids=["line", "header", "headers"],
)
def test_a_head_without_end_is_refused_at_its_limit(
    http: RawHttp, info: dict[str, Any], head: bytes
) -> None:
    before = peak_bytes(info)
    answer = http.send(head)
    assert answer.status in (0, 400)  # 0: it was cut off in the middle of sending
    assert http.send(head[: 16 * 1024]).json["code"] == "invalid_input"
    assert peak_bytes(info) - before < 8 * MIB


def test_a_cursor_is_good_for_its_own_session_alone(
    daemon: Daemon, work: Path, info: dict[str, Any], http: RawHttp
) -> None:
    other = daemon.create(work)
    events = f"/sessions/{info['session_id']}/events?follow=0"
    for cursor, status in [
        ("0", 200),
        ("999999999", 400),
        ("-1", 400),
        ("1.0", 400),
        ("0x1", 400),
        ("²", 400),
        ("1" * 5000, 400),
        ("' OR 1=1", 400),
        (other["session_id"], 400),
    ]:
        assert http.ask(f"GET {events}", **{"Last-Event-ID": cursor}).status == status, cursor[:40]
    foreign = f"GET /sessions/{other['session_id']}/events?follow=0"
    assert http.ask(foreign).status == 404


def test_a_flood_of_strangers_shuts_out_neither_us_nor_other_sessions(
    daemon: Daemon, work: Path, info: dict[str, Any]
) -> None:
    stranger = RawHttp.over_tcp(info).without_token()
    before = peak_bytes(info)
    with ExitStack() as held:
        flood = [held.enter_context(stranger.connect()) for _ in range(CONNECTIONS + REFUSALS)]
        for sock in flood[:CONNECTIONS]:
            sock.sendall(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 8000)
        told = receive(flood[-1])
        assert (told.status, told.json["code"]) == (503, "overloaded")
        assert stranger.ask().status == 503
        assert RawHttp.over_unix(info).ask().status == 200
        assert daemon.session(work).get("/healthz")[0] == 200
        assert peak_bytes(info) - before < 16 * MIB
    eventually(lambda: stranger.ask().status == 401, "there is room again")


def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_trouble(
    http: RawHttp, daemon: Daemon, info: dict[str, Any]
) -> None:
    with http.connect() as sock:
        length = {"Content-Length": "100000", **JSON_TYPE}
        sock.sendall(http.compose("POST /runs", b"half", **length))
        sock.shutdown(socket.SHUT_RDWR)
    assert http.post("/runs", run_request("list the files here")).json["status"] == "completed"
    log = daemon.home / "state/sessions" / info["session_id"] / "worker.log"
    assert log.read_text() == ""
