"""Who may ask a session's endpoint, and in which form: the whole table of verdicts."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from session_worker.http.access import Asked, Peer, refusal
from session_worker.spec import TcpSpec
from sidecar.tcp_config import Tcp, read_tcp

TOKEN = "ab" * 32
PAGE = "http://localhost:3000"
TCP = TcpSpec(8123, TOKEN, frozenset({PAGE}))
US = Peer(ours=True, of_a_session=False)
STRANGER = Peer(ours=False, of_a_session=False)
TOOL = Peer(ours=True, of_a_session=True)
JSON = "application/json"
UPGRADE = ("Upgrade", "websocket")


def verdict(
    peer: Peer | None,
    *headers: tuple[str, str],
    method: str = "GET",
    target: str = "/healthz",
    content_type: str | None = None,
    tcp: TcpSpec | None = TCP,
) -> int | None:
    asked = Asked(method, target, CIMultiDict(headers), content_type, peer)
    error = refusal(asked, tcp)
    return error and error.status


def over_tcp(
    *headers: tuple[str, str],
    host: str = "127.0.0.1:8123",
    token: str = f"Bearer {TOKEN}",
    method: str = "GET",
    target: str = "/healthz",
    content_type: str | None = None,
) -> int | None:
    given = (("Host", host), ("Authorization", token), *headers)
    return verdict(None, *given, method=method, target=target, content_type=content_type)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8123", "localhost:8123", "LOCALHOST:8123", "Localhost:8123"]
)
def test_a_host_that_is_ours_and_the_token_open_the_door(host: str) -> None:
    assert over_tcp(host=host) is None
    assert over_tcp(host=host, method="POST", content_type=JSON) is None


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8123",
        "127.0.0.1",
        "localhost",
        "127.0.0.1:80",
        "127.0.0.1:08123",
        "127.0.0.1:8123:8123",
        "127.0.0.1:8123 ",
        "127.0.0.1:8123@evil.example",
        "evil.example@127.0.0.1:8123",
        "localhost.:8123",
        "localhost.evil.example:8123",
        "127.0.0.1.evil.example:8123",
        "0.0.0.0:8123",
        "127.1:8123",
        "2130706433:8123",
        "[::1]:8123",
        "[::ffff:127.0.0.1]:8123",
        "localhost:８１２３",
    ],
)
def test_any_other_host_is_misdirected_whatever_token_it_brings(host: str) -> None:
    assert over_tcp(host=host) == 421


@pytest.mark.parametrize(
    "target",
    ["http://evil.example/healthz", "http://127.0.0.1:8123/healthz", "evil.example:443", "*"],
)
def test_an_address_in_the_first_line_would_win_over_the_host_and_is_refused(target: str) -> None:
    assert over_tcp(target=target) == 421


def test_a_request_without_a_host_is_misdirected() -> None:
    assert verdict(None, ("Authorization", f"Bearer {TOKEN}")) == 421


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}0",
        f"Bearer  {TOKEN}",
        f"Bearer {TOKEN} ",
        f"Bearer {TOKEN.upper()}",
        f"Bearer {TOKEN},Bearer {TOKEN}",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer é\udcff",
    ],
)
def test_anything_but_the_token_is_unauthorized(authorization: str) -> None:
    assert over_tcp(token=authorization) == 401


def test_the_scheme_of_the_token_may_be_written_as_one_likes() -> None:
    assert over_tcp(token=f"bearer {TOKEN}") is None


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("Cookie", f"token={TOKEN}"),),
        (("X-Api-Key", TOKEN),),
        (("Proxy-Authorization", f"Bearer {TOKEN}"),),
        (("Sec-WebSocket-Protocol", TOKEN), UPGRADE),
        (("Authorization", f"Bearer {TOKEN}"), ("Authorization", f"Bearer {TOKEN}")),
    ],
)
def test_the_token_counts_once_and_in_its_own_header_only(
    headers: tuple[tuple[str, str], ...],
) -> None:
    target = f"/healthz?token={TOKEN}&access_token={TOKEN}"
    assert verdict(None, ("Host", "localhost:8123"), *headers, target=target) == 401


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "*",
        "",
        "http://localhost",
        "http://localhost:30001",
        "http://localhost:3000/",
        "https://localhost:3000",
        "HTTP://LOCALHOST:3000",
        "http://localhost:3000.evil.example",
        "http://127.0.0.1:8123",
        f"{PAGE}, {PAGE}",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_a_page_that_is_not_listed_is_refused_even_with_the_token(origin: str, method: str) -> None:
    assert over_tcp(("Origin", origin), method=method, content_type=JSON) == 403
    assert verdict(US, ("Origin", origin), method=method, content_type=JSON) == 403


def test_a_listed_page_needs_the_token_too_and_hides_no_other() -> None:
    assert over_tcp(("Origin", PAGE)) is None
    assert over_tcp(("Origin", PAGE), token="") == 401
    assert over_tcp(("Origin", PAGE), method="OPTIONS", token="") == 401
    assert over_tcp(("Origin", PAGE), ("Origin", "http://evil.example")) == 403


def test_a_page_does_not_learn_whether_its_token_is_right() -> None:
    evil = ("Origin", "http://evil.example")
    assert over_tcp(evil) == over_tcp(evil, token="") == 403
    assert over_tcp(host="evil.example") == over_tcp(host="evil.example", token="") == 421


@pytest.mark.parametrize("tcp", [None, TCP])
def test_our_own_user_needs_no_token_on_the_unix_socket(tcp: TcpSpec | None) -> None:
    assert verdict(US, ("Host", "anything"), tcp=tcp) is None
    assert verdict(US, method="POST", content_type=JSON, tcp=tcp) is None


def test_another_user_gets_nothing_on_the_unix_socket_with_any_token() -> None:
    assert verdict(STRANGER) == 403
    assert verdict(STRANGER, ("Authorization", f"Bearer {TOKEN}")) == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_what_an_agent_starts_may_look_but_not_steer(method: str) -> None:
    assert verdict(TOOL) is None
    assert verdict(TOOL, method=method, content_type=JSON) == 403
    assert verdict(US, method=method, content_type=JSON) is None


def test_an_upgrade_steers_although_it_is_a_get() -> None:
    assert verdict(TOOL, UPGRADE) == 403
    assert verdict(US, UPGRADE) is None
    assert over_tcp(UPGRADE) is None


@pytest.mark.parametrize(
    "content_type",
    [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""],
)
def test_a_form_that_any_page_can_send_changes_nothing(content_type: str | None) -> None:
    path = "/sessions/s/cancel"
    for status in (
        over_tcp(method="POST", target=path, content_type=content_type),
        verdict(US, method="POST", target=path, content_type=content_type),
    ):
        assert status == 415


def test_a_run_and_a_delete_may_come_without_a_content_type() -> None:
    assert verdict(US, method="POST", target="/runs") is None
    assert verdict(US, method="DELETE", target="/acp") is None
    assert verdict(US, method="POST", target="/runs", content_type="text/plain") == 415


def test_without_tcp_nobody_comes_over_tcp() -> None:
    assert verdict(None, ("Host", "127.0.0.1:8123"), tcp=None) == 421


def test_the_token_is_not_in_what_a_log_shows_of_the_specification() -> None:
    assert TOKEN not in repr(TCP)


@pytest.mark.parametrize(
    "origins",
    [
        [],
        ["http://localhost:3000", "https://app.example", "vscode-webview://0abc_d"],
        ["http://[::1]:3000", "tauri://localhost"],
    ],
)
def test_origins_are_taken_as_browsers_send_them(origins: list[str]) -> None:
    assert read_tcp({"tcp": {"origins": origins}}) == Tcp(tuple(origins))


@pytest.mark.parametrize(
    "table",
    [
        {"origins": ["*"]},
        {"origins": ["null"]},
        {"origins": [""]},
        {"origins": ["http://*.example"]},
        {"origins": ["http://localhost:3000/"]},
        {"origins": ["http://user@localhost"]},
        {"origins": ["HTTP://localhost"]},
        {"origins": ["localhost:3000"]},
        {"origins": ["http://a\nhttp://b"]},
        {"origins": [3000]},
        {"origins": "http://localhost:3000"},
        {"port": 80},
        "yes",
    ],
)
def test_what_is_no_origin_is_refused_in_the_settings(table: object) -> None:
    with pytest.raises(ValueError, match="tcp"):
        read_tcp({"tcp": table})


def test_without_the_table_no_page_is_listed() -> None:
    assert read_tcp({}) == Tcp()
