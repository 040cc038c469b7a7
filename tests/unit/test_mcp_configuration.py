"""How MCP servers are configured, and which of a project's are started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from session_worker.mcp_servers.approval import Approvals, project_servers
from session_worker.mcp_servers.configuration import Entry, expand, parse_server, parse_servers
from session_worker.mcp_servers.connector import connector


def parsed(raw: object, source: Any = "user") -> Entry:
    return parse_server("gh", raw, source)


def refusal(raw: object) -> str:
    with pytest.raises(ValueError) as refused:
        parsed(raw)
    return str(refused.value)


def test_a_stdio_and_an_http_server_have_the_documented_defaults() -> None:
    stdio = parsed({"command": "x"}).settings
    assert (stdio.args, stdio.env, stdio.startup_timeout_s, stdio.timeout_s) == ([], {}, 15, 120)
    assert (stdio.enabled, stdio.required, stdio.is_http) == (True, False, False)
    assert parsed({"type": "http", "url": "https://x/mcp"}).settings.is_http
    assert parsed({"url": "https://x/mcp"}).settings.is_http


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({}, "mcpServers.gh: command is missing"),
        ({"type": "http"}, "mcpServers.gh: url is missing"),
        ({"url": "ftp://x"}, "mcpServers.gh.url: not an http:// or https:// address"),
        ({"type": "sse", "url": "https://x"}, "mcpServers.gh.type: "),
        ({"command": "x", "url": "https://x", "type": "stdio"}, "url does not go with command"),
        ({"url": "https://x", "env": {}}, "env does not go with url"),
        ({"command": "x", "exclud": []}, "mcpServers.gh.exclud: "),
        ({"command": "x", "args": [1]}, "mcpServers.gh.args.0: "),
        ({"command": "x", "env": {"A=B": "c"}}, "mcpServers.gh.env.A=B"),
        ({"command": "x", "args": ["a\0b"]}, "mcpServers.gh.args.0: "),
        ({"command": "x", "timeout_s": 0}, "mcpServers.gh.timeout_s: "),
        ({"command": "x", "startup_timeout_s": 9999}, "mcpServers.gh.startup_timeout_s: "),
        ({"command": "x", "enabled": "yes"}, "mcpServers.gh.enabled: "),
        ({"command": ""}, "mcpServers.gh.command: "),
        ({"command": "x", "args": None}, "mcpServers.gh.args: "),
        ({"command": "x", "timeout_s": True}, "mcpServers.gh.timeout_s: "),
        ({"command": "x", "timeout_s": float("nan")}, "mcpServers.gh.timeout_s: "),
        ({"command": "x", "include": "a"}, "mcpServers.gh.include: "),
        ({"command": "x", "connector": True}, "mcpServers.gh.connector: "),
        ({"url": "https://x", "authorization_token": "t"}, "goes only with connector"),
        ({"url": "https://x", "connector": True, "headers": {}}, "headers does not go with"),
        ({"url": "https://x", "connector": True, "include": ["a*"]}, "no patterns"),
        ("npx", "mcpServers.gh: "),
    ],
)
def test_a_refusal_names_server_and_field(raw: object, said: str) -> None:
    assert said in refusal(raw)


def test_a_refusal_quotes_no_value() -> None:
    assert "s3cret" not in refusal({"command": "x", "env": {"TOKEN": ["s3cret"]}})
    assert "s3cret" not in refusal({"command": "x", "args": {"s": "s3cret"}})


def test_one_bad_server_leaves_the_others_alone() -> None:
    entries, problems = parse_servers({"mcpServers": {"a": {"command": "x"}, "b": {}}}, "user")
    assert list(entries) == ["a"]
    assert problems == ["mcpServers.b: command is missing"]


@pytest.mark.parametrize("raw", [{}, {"mcpServers": []}, {"servers": {}}])
def test_something_else_is_no_configuration(raw: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="mcpServers"):
        parse_servers(raw, "user")


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 65, "a\n"])
def test_a_name_must_fit_into_a_path_and_a_tool(name: str) -> None:
    with pytest.raises(ValueError, match="name of a server"):
        parse_server(name, {"command": "x"}, "user")


def test_variables_are_expanded_where_they_may_stand() -> None:
    raw = {"command": "${A}", "args": ["-${A}", "${B:-b}${EMPTY:-e}"], "env": {"K": "${A}$A"}}
    settings = expand(parsed(raw), {"A": "1", "EMPTY": ""})
    assert (settings.command, settings.args) == ("1", ["-1", "be"])
    assert settings.env == {"K": "1$A"}
    remote = expand(parsed({"url": "https://${H}/", "headers": {"X": "${H}"}}), {"H": "h"})
    assert (remote.url, remote.headers) == ("https://h/", {"X": "h"})


def test_what_a_variable_holds_is_not_expanded_again() -> None:
    assert expand(parsed({"command": "${A}"}), {"A": "${B}"}).command == "${B}"


def test_an_unset_variable_is_named_with_server_and_field() -> None:
    entry = parsed({"url": "https://x", "headers": {"Authorization": "Bearer ${TOKEN}"}})
    with pytest.raises(ValueError, match=r"mcpServers.gh.headers.Authorization: TOKEN is not"):
        expand(entry, {})


@pytest.mark.parametrize("url", ["file:///etc/passwd", "https://", "http:///x", "https://x/ y"])
def test_an_address_must_be_one_of_http(url: str) -> None:
    with pytest.raises(ValueError, match=r"mcpServers.gh.url"):
        expand(parsed({"url": "${U}"}), {"U": url})


def test_a_header_that_cannot_be_sent_is_named_without_its_value() -> None:
    entry = parsed({"url": "https://x", "headers": {"X-Key": "${KEY}"}})
    with pytest.raises(ValueError, match=r"mcpServers.gh.headers.X-Key") as refused:
        expand(entry, {"KEY": "s3cret\n"})
    assert "s3cret" not in str(refused.value)


def test_what_the_api_connects_to_is_written_as_the_api_takes_it() -> None:
    entry = parsed({"url": "https://${H}/mcp", "connector": True, "authorization_token": "${T}"})
    plain = parsed({"url": "https://b/mcp", "connector": True, "include": ["a"], "exclude": ["b"]})
    of_gh = expand(entry, {"H": "h", "T": "s3cret"})
    made = connector({"b": expand(plain, {}), "a": of_gh})
    assert made.servers == [
        {"type": "url", "url": "https://h/mcp", "name": "a", "authorization_token": "s3cret"},
        {"type": "url", "url": "https://b/mcp", "name": "b"},
    ]
    configs = {"a": {"enabled": True}, "b": {"enabled": False}}
    closed = {"default_config": {"enabled": False}, "configs": configs}
    assert made.toolsets == [
        {"type": "mcp_toolset", "mcp_server_name": "a"},
        {"type": "mcp_toolset", "mcp_server_name": "b", **closed},
    ]
    assert (made.betas, connector({}).betas) == (["mcp-client-2025-11-20"], [])
    assert "s3cret" not in repr(made)
    with pytest.raises(ValueError, match="https://"):
        expand(parsed({"url": "http://h", "connector": True}), {})


def test_what_is_null_is_as_if_it_were_not_there() -> None:
    assert parsed({"command": "x", "cwd": None, "include": None}).settings.include is None


def test_nothing_that_may_be_secret_is_in_a_repr() -> None:
    raw = {"command": "s3cret", "args": ["s3cret"], "env": {"A": "s3cret"}}
    assert "s3cret" not in repr(parsed(raw))
    assert "s3cret" not in repr(parsed({"url": "https://s3cret", "headers": {"A": "s3cret"}}))


def project(root: Path, **servers: Any) -> list[Entry]:
    (root / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    entries, notices = project_servers(root, trusted=True)
    assert not notices
    return list(entries.values())


def pending_approval(entries: list[Entry], approvals: Approvals) -> list[Entry]:
    return [entry for entry in entries if not approvals.is_approved(entry)]


def test_a_new_or_changed_server_of_a_project_waits_for_approval(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path, tmp_path)
    first = project(tmp_path, a={"command": "x"}, b={"command": "y"})
    assert pending_approval(first, approvals) == first
    approvals.approve(first[0])
    assert pending_approval(first, approvals) == first[1:]
    changed = project(tmp_path, a={"command": "x", "args": ["-f"]})
    assert pending_approval(changed, approvals) == changed
    assert pending_approval(first, Approvals(tmp_path, tmp_path / "other")) == first


def test_what_the_user_configured_needs_no_approval(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path, tmp_path)
    assert not pending_approval([parsed({"command": "x"}, "session")], approvals)


def test_a_broken_store_approves_nothing(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path, tmp_path)
    entries = project(tmp_path, a={"command": "x"})
    approvals.approve(entries[0])
    (tmp_path / "mcp-approved.json").write_text('{"v": 2}')
    assert pending_approval(entries, approvals) == entries


def test_an_untrusted_project_has_no_servers_but_a_notice(tmp_path: Path) -> None:
    project(tmp_path, a={"command": "x"})
    entries, notices = project_servers(tmp_path, trusted=False)
    assert not entries
    assert f"sidecarctl trust {tmp_path}" in notices[0]


@pytest.mark.parametrize("text", ["{", "[]", '{"mcpServers": 1}', "[" * 100_000])
def test_a_file_that_makes_no_sense_is_a_notice(tmp_path: Path, text: str) -> None:
    (tmp_path / ".mcp.json").write_text(text)
    entries, notices = project_servers(tmp_path, trusted=True)
    assert (entries, len(notices)) == ({}, 1)


def test_a_file_that_leads_out_of_the_project_is_not_read(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (tmp_path / "other.json").write_text('{"mcpServers": {"a": {"command": "x"}}}')
    (root / ".mcp.json").symlink_to(tmp_path / "other.json")
    entries, notices = project_servers(root, trusted=True)
    assert (entries, len(notices)) == ({}, 1)
