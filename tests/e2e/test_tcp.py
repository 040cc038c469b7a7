"""A session that listens on loopback lets in whoever has its token, and nobody else."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from session_worker.demo_model import Reply
from session_worker.http.app import build_app
from tests.support.cli import Cli
from tests.support.control import Control
from tests.support.daemon import Daemon
from tests.support.endpoint import run_request
from tests.support.processes import eventually
from tests.support.questions import results
from tests.support.raw_http import Answer, RawHttp, receive
from tests.support.scripted import FINE, bash, scripted_session

Info = dict[str, Any]
KEY = "sk-test"
"""Of a scripted session."""


def listening(pid: int) -> list[str]:
    connections = psutil.Process(pid).net_connections("inet")
    return [c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN]


def is_refusal(answer: Answer, status: int) -> bool:
    """In our shape, and with nothing that would let a page read it."""
    shaped = answer.status == status and set(answer.json) == {"code", "message"}
    return shaped and not any(name.startswith("access-control") for name in answer.headers)


def status(daemon: Daemon, info: Info) -> Info:
    return daemon.call("session.status", session_id=info["session_id"])


def test_nothing_listens_on_a_network_unless_it_is_asked_for(daemon: Daemon, work: Path) -> None:
    info = daemon.create(work)
    assert (info["endpoint"]["url"], info["endpoint"]["token"]) == (None, None)
    assert listening(info["pid"]) == listening(info["shim_pid"]) == []


def test_a_session_with_tcp_listens_on_loopback_alone_and_works_there(
    daemon: Daemon, work: Path
) -> None:
    info = daemon.create(work, tcp=True)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", info["endpoint"]["url"])
    assert re.fullmatch(r"[0-9a-f]{64}", info["endpoint"]["token"])
    assert listening(info["pid"]) == listening(info["shim_pid"]) == ["127.0.0.1"]
    http = RawHttp.over_tcp(info)
    assert http.ask().json["session_id"] == info["session_id"]
    run = http.post("/runs", run_request("run `echo over tcp`"))
    assert (run.status, run.json["status"]) == (200, "completed")
    assert RawHttp.over_unix(info).ask().status == 200


def test_every_route_wants_the_token_also_one_that_does_not_exist(
    daemon: Daemon, work: Path
) -> None:
    stranger = RawHttp.over_tcp(daemon.create(work, tcp=True)).without_token()
    routes = [(r.method, r.resource.canonical) for r in build_app().router.routes() if r.resource]
    assert len(routes) > 20
    for method, path in [*routes, ("GET", "/nowhere"), ("OPTIONS", "/runs"), ("PROPFIND", "/")]:
        answer = stranger.ask(f"{method} {path}", **{"Content-Type": "application/json"})
        assert answer.status == 401, (method, path)
        assert answer.headers["www-authenticate"] == "Bearer"
        assert method == "HEAD" or is_refusal(answer, 401)


def test_the_token_counts_in_its_header_alone(daemon: Daemon, work: Path) -> None:
    info = daemon.create(work, tcp=True)
    token, stranger = info["endpoint"]["token"], RawHttp.over_tcp(info).without_token()
    assert is_refusal(stranger.ask(f"GET /healthz?token={token}&access_token={token}"), 401)
    for headers in (
        {"Cookie": f"token={token}; Authorization={token}"},
        {"Authorization": f"Bearer {token[:-1]}x"},
        {"Authorization": f"Basic {token}"},
        {"Upgrade": "websocket", "Connection": "Upgrade, close", "Sec-WebSocket-Version": "13"},
        {"Upgrade": "websocket", "Connection": "Upgrade, close", "Sec-WebSocket-Protocol": token},
    ):
        assert is_refusal(stranger.ask(**headers), 401), headers


def test_a_name_that_was_made_to_point_here_is_refused(daemon: Daemon, work: Path) -> None:
    http = RawHttp.over_tcp(daemon.create(work, tcp=True))
    port = http.address
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"localhost.:{port}"):
        assert is_refusal(http.ask(Host=host), 421), host
    assert is_refusal(http.ask("GET http://evil.example/healthz"), 421)
    assert http.ask(Host=f"localhost:{port}").status == 200
    assert http.send(b"GET /healthz HTTP/1.1\r\n\r\n").status == 400
    assert is_refusal(http.send(b"GET /healthz HTTP/1.0\r\n\r\n"), 421)


def test_a_page_can_neither_ask_nor_send_nor_look_first(daemon: Daemon, work: Path) -> None:
    http = RawHttp.over_tcp(daemon.create(work, tcp=True))
    preflight = {"Access-Control-Request-Method": "POST"}
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{http.address}"):
        assert is_refusal(http.ask(Origin=origin), 403)
        assert is_refusal(http.post("/runs", run_request("hi"), Origin=origin), 403)
        assert is_refusal(http.ask("OPTIONS /runs", Origin=origin, **preflight), 403)
    form = {"Content-Type": "text/plain"}
    assert is_refusal(http.post("/runs", run_request("hi"), **form), 415)
    assert not [e for e in _events(http, daemon) if e["type"] == "run_started"]


def _events(http: RawHttp, daemon: Daemon) -> list[Info]:
    session_id = http.ask().json["session_id"]
    return daemon.call("session.output", session_id=session_id)["events"]


def test_socket_and_token_outlive_crashes_and_sleep_of_the_worker(
    daemon: Daemon, work: Path
) -> None:
    info = daemon.create(work, tcp=True, idle_timeout_s=0.2)
    http = RawHttp.over_tcp(info)
    os.kill(http.ask().json["pid"], signal.SIGKILL)
    eventually(lambda: status(daemon, info)["restarts"] == 1, "the crash is noticed")
    assert http.ask().json["incarnation"] == 2
    eventually(lambda: status(daemon, info)["state"] == "sleeping", "it sleeps")
    assert status(daemon, info)["endpoint"] == info["endpoint"]
    assert http.ask().json["incarnation"] == 3
    assert is_refusal(http.without_token().ask(), 401)


def test_two_clients_that_come_at_once_by_either_socket_wake_one_worker(
    daemon: Daemon, work: Path
) -> None:
    info = daemon.create(work, tcp=True, idle_timeout_s=0.2)
    eventually(lambda: status(daemon, info)["state"] == "sleeping", "it sleeps")
    os.kill(info["shim_pid"], signal.SIGSTOP)
    doors = (RawHttp.over_unix(info), RawHttp.over_tcp(info))
    with doors[0].connect() as unix, doors[1].connect() as tcp:
        unix.sendall(doors[0].compose("GET /healthz"))
        tcp.sendall(doors[1].compose("GET /healthz"))
        os.kill(info["shim_pid"], signal.SIGCONT)
        assert receive(unix).json == receive(tcp).json
    assert status(daemon, info)["restarts"] == 0


def test_pages_are_listed_in_the_settings_of_the_sessions_that_follow(
    own_daemon: Daemon, work: Path
) -> None:
    info = own_daemon.create(work, tcp=True)
    own_daemon.configure('[tcp]\norigins = ["http://localhost:3000"]\n')
    page = {"Origin": "http://localhost:3000"}
    assert is_refusal(RawHttp.over_tcp(info).ask(**page), 403)  # as it was when it started
    listed = RawHttp.over_tcp(own_daemon.create(work, tcp=True))
    answer = listed.ask(**page)
    assert answer.status == 200
    assert not any(name.startswith("access-control") for name in answer.headers)
    assert is_refusal(listed.without_token().ask("OPTIONS /runs", **page), 401)
    assert is_refusal(listed.ask(Origin="http://localhost:3001"), 403)


def test_a_session_that_was_lost_comes_back_with_another_token(daemon: Daemon, work: Path) -> None:
    info = daemon.create(work, tcp=True)
    os.kill(info["shim_pid"], signal.SIGKILL)
    eventually(lambda: status(daemon, info)["state"] == "lost", "the session is lost")
    assert status(daemon, info)["endpoint"] | {"socket": ""} == {
        "socket": "",
        "url": None,
        "token": None,
    }
    again = daemon.call("session.resume", session_id=info["session_id"])
    assert again["endpoint"]["token"] != info["endpoint"]["token"]
    http = RawHttp.over_tcp(again)
    assert http.ask().status == 200
    assert is_refusal(http.ask(Authorization=f"Bearer {info['endpoint']['token']}"), 401)


def test_the_token_of_one_session_opens_no_other(daemon: Daemon, work: Path) -> None:
    one, other = (daemon.create(work, tcp=True) for _ in range(2))
    borrowed = f"Bearer {one['endpoint']['token']}"
    assert is_refusal(RawHttp.over_tcp(other).ask(Authorization=borrowed), 401)


def test_nobody_listens_for_a_session_that_has_ended(daemon: Daemon, work: Path) -> None:
    info = daemon.create(work, tcp=True)
    ended = daemon.call("session.destroy", session_id=info["session_id"])
    assert (ended["endpoint"]["url"], ended["endpoint"]["token"]) == (None, None)
    with pytest.raises(ConnectionRefusedError):
        RawHttp.over_tcp(info).ask()


def test_token_and_key_are_in_no_file_no_environment_and_no_argument(
    daemon: Daemon, work: Path
) -> None:
    look = bash("env; cat /proc/self/environ /proc/$PPID/environ; ps axww; echo looked")
    with scripted_session(daemon, work, tcp=True) as session:
        info = daemon.call("session.status", session_id=session.endpoint.session_id)
        token = info["endpoint"]["token"]
        http = RawHttp.over_tcp(info)
        line = f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization : Bearer {token}\r\n\r\n"
        assert http.send(line.encode()).status == 400  # what aiohttp would log with the line
        assert http.ask(f"GET /nowhere?token={token}").status == 404
        session.prompt(Reply([look]), FINE)
        assert "looked" in results(session)[0]
        told = json.dumps([session.endpoint.events(), _events(http, daemon)])
        daemon_pid = daemon.call("sidecar.status")["pid"]
        for pid in (info["pid"], info["shim_pid"], daemon_pid):
            for name in ("environ", "cmdline"):
                told += Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    daemon.call("session.destroy", session_id=info["session_id"])
    files = [path for path in daemon.home.rglob("*") if path.is_file()]
    assert {"record.json", "exit.json", "transcript.jsonl", "worker.log", "daemon.log"} <= {
        path.name for path in files
    }
    told += "".join(path.read_bytes().decode(errors="replace") for path in files)
    for secret in (token, KEY):
        assert secret not in told


def test_lists_and_notifications_do_not_tell_the_token(daemon: Daemon, work: Path) -> None:
    watcher = Control(daemon.socket)
    watcher.call("sidecar.subscribe")
    info = daemon.create(work, tcp=True, name="told")
    token = info["endpoint"]["token"]
    (listed,) = daemon.call("session.list")["sessions"]
    assert listed["endpoint"] == info["endpoint"] | {"token": None}
    while (news := watcher.notification()["params"])["state"] != "idle":
        pass
    watcher.close()
    assert news["endpoint"] == listed["endpoint"]
    assert token not in json.dumps([news, listed])


def test_a_tool_gets_nowhere_over_tcp_and_cannot_steer_over_the_unix_socket(
    daemon: Daemon, work: Path
) -> None:
    curl = "curl -s --noproxy '*' -o /dev/null -w '%{http_code} '"
    with scripted_session(daemon, work, tcp=True) as session:
        info = daemon.call("session.status", session_id=session.endpoint.session_id)
        where = info["endpoint"]
        unix = f"{curl} --unix-socket {where['socket']} http://localhost"
        json_type = "-H 'Content-Type: application/json'"
        upgrade = "-H 'Connection: Upgrade' -H 'Upgrade: websocket'"
        (work / "probe").write_text(  # a command that names the socket would be asked about
            f"{curl} {where['url']}/healthz; {curl} {upgrade} {where['url']}/healthz;"
            f"{unix}/healthz; {unix}/runs {json_type} -d '{{}}'; {unix}/healthz {upgrade}"
        )
        session.prompt(Reply([bash("bash probe")]), FINE)
        assert results(session)[0].split()[:5] == ["401", "401", "200", "403", "403"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
def test_another_user_reaches_neither_socket_of_a_session(daemon: Daemon, work: Path) -> None:
    info = daemon.create(work, tcp=True)
    where = info["endpoint"]

    def curl(*args: str) -> str:
        command = ["curl", "-s", "--noproxy", "*", "-w", " %{http_code}", *args]
        asked = subprocess.run(
            command,
            user=65534,
            group=65534,
            extra_groups=[],
            text=True,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return asked.stdout

    assert curl(f"{where['url']}/healthz").endswith(" 401")
    unix = ("--unix-socket", where["socket"], "http://localhost/healthz")
    assert curl(*unix) == " 000"  # the directory is closed
    socket = Path(where["socket"])
    opened = [socket, socket.parent, socket.parent.parent, daemon.home]
    modes = [path.stat().st_mode for path in opened]
    try:
        for path in opened:
            path.chmod(0o777)
        assert curl(*unix).endswith(" 403")  # and behind it, the peer is looked at
    finally:
        for path, mode in zip(opened, modes, strict=True):
            path.chmod(mode)


def test_the_command_line_tells_the_token_only_when_it_is_asked_for(cli: Cli) -> None:
    cli.ok("new", "--name", "s", "--tcp")
    where = cli.json("url", "s")
    assert where["token"]
    for quiet in (("url", "s"), ("session", "show", "s"), ("ls",), ("ls", "-o", "json")):
        assert where["token"] not in cli.ok(*quiet), quiet
    assert cli.ok("url", "s").strip() == where["url"]
    lines = cli.ok("url", "s", "--curl")
    shown = subprocess.check_output(["bash", "-c", lines], text=True, timeout=60)
    events = [json.loads(line.removeprefix("data: ")) for line in shown.split("\n\n") if line]
    assert events[-1]["type"] == "run.completed"
