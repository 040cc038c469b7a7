"""`web_fetch` as a session has it: offered, asked about by host, and refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model import Reply, tool_use
from tests.support.daemon import Daemon
from tests.support.questions import answered, asking, results
from tests.support.scripted import FINE, scripted_session

PAGE = b"<title>Home</title><h1>Wel&shy;come</h1><p>" + b"word " * 20_000 + b"<a href=/x>more</a>"


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404 if self.path == "/none" else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def fetch(url: str) -> Reply:
    return Reply([tool_use("web_fetch", {"url": url})])


def test_a_host_is_asked_about_once_and_its_pages_are_read(
    own_daemon: Daemon, work: Path, site: str
) -> None:
    """One daemon, whose settings change."""
    settings = f"[web_fetch]\nallow_private = ['{site}']\n"
    own_daemon.configure(settings)
    with asking(own_daemon, work) as ask:
        session = ask(mode="plan")  # it changes nothing
        question, _ = answered(session, "allow_session", fetch(f"http://{site}/"), FINE)
        assert question["toolCall"]["title"] == f"http://{site}/"
        assert question["_meta"]["sidecar"]["rules"] == ["web_fetch(domain:127.0.0.1)"]
        (text,) = results(session)
        assert text.startswith(f"[http://{site}/ · HTTP 200 · text/html · ")
        assert "Home\n\n# Wel\xadcome\n\nword word" in text
        assert text.rstrip().endswith("]") and "middle omitted; full: " in text
        session.completes(fetch(f"http://{site}/none"))  # without a question
        assert "HTTP 404" in results(session)[0]
        session.completes(fetch(f"http://me:secret@{site}/"))
        assert "a user or a password" in results(session)[0]

    deny = "[permissions]\ndeny = ['web_fetch(domain:*.0.0.1)']\n[sandbox]\nlevel = 'guard'\n"
    own_daemon.configure(settings + deny)
    with scripted_session(own_daemon, work, mode="bypass") as session:
        session.completes(fetch(f"http://{site}/"))
        assert "web_fetch(domain:*.0.0.1)" in results(session)[0]
        session.completes(fetch("http://localhost/"))
        assert "sandbox has no network" in results(session)[0]


def test_this_machine_is_not_asked_unless_the_settings_say_so(
    daemon: Daemon, work: Path, site: str
) -> None:
    with scripted_session(daemon, work, mode="bypass") as session:
        session.completes(fetch(f"http://{site}/"))
        assert "an address that is this machine's own" in results(session)[0]
        session.completes(fetch("file:///etc/passwd"))
        assert "only http:// and https://" in results(session)[0]
