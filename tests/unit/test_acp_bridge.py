"""The parts of `sidecarctl acp` that need no daemon: its streams, its ids, its answers."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

import pytest

from client.acp import initialize, messages
from client.acp.ids import AgentIds
from client.acp.messages import Json, Refused
from client.acp.sessions import PAGE, list_page, servers_of
from client.acp.stdio import LINE_BYTES, UNREAD_BYTES, Stdio
from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.session_info import SessionInfo

# --- ids -------------------------------------------------------------------------------------


def test_two_workers_may_use_the_same_id() -> None:
    ids = AgentIds()
    numbers = [ids.number("a", 1), ids.number("b", 1), ids.number("a", "1")]
    assert len(set(numbers)) == 3
    assert [ids.settle(n) for n in numbers] == [("a", 1), ("b", 1), ("a", "1")]


def test_an_answer_counts_once_and_only_for_what_was_asked() -> None:
    ids = AgentIds()
    number = ids.number("a", 7)
    for stranger in (number + 1, str(number), True, None, [number]):
        assert ids.settle(stranger) is None
    assert ids.settle(number) == ("a", 7)
    assert ids.settle(number) is None
    assert ids.open_number("a", 7) is None


def test_a_withdrawn_request_still_waits_for_its_answer() -> None:
    ids = AgentIds()
    number = ids.number("a", "q")
    assert ids.open_number("a", "q") == number
    assert ids.open_number("b", "q") is None
    assert ids.settle(number) == ("a", "q")


def test_what_a_worker_had_open_is_forgotten_with_it() -> None:
    ids = AgentIds()
    first, other, second = ids.number("a", 1), ids.number("b", 1), ids.number("a", 2)
    assert ids.forget("a") == [first, second]
    assert ids.settle(first) is None
    assert ids.settle(other) == ("b", 1)
    assert ids.number("a", 1) not in (first, other, second)


# --- messages --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"garbage", -32700),
        (b'{"id":1', -32700),
        (b'{"method":"\xff"}', -32700),
        (b'{"id":NaN}', -32700),
        (b"[" * 100_000, -32700),
        (b"[]", -32600),
        (b'"text"', -32600),
        (b'{"id":1.5,"method":"m"}', -32600),
        (b'{"id":true,"method":"m"}', -32600),
        (b'{"id":{},"method":"m"}', -32600),
        (b'{"id":"%s","method":"m"}' % (b"x" * 2000), -32600),
        (b'{"id":1,"method":null}', -32600),
    ],
)
def test_what_is_no_message_is_refused(line: bytes, code: int) -> None:
    with pytest.raises(Refused) as refused:
        messages.parse(line)
    assert refused.value.error["code"] == code


@pytest.mark.parametrize("params", [None, [], 1, "x"])
def test_params_that_are_no_object_are_none(params: Any) -> None:
    assert messages.params_of({"params": params}) == {}


@pytest.mark.parametrize(
    ("code", "number"),
    [("session_not_found", -32002), ("invalid_params", -32602), ("start_failed", -32603)],
)
def test_errors_of_the_daemon_keep_their_text_and_hint(code: str, number: int) -> None:
    error = messages.refusal(SidecarError(code, "why", "do that", stage="spawn")).error
    data = {"code": code, "hint": "do that", "stage": "spawn"}
    assert error == {"code": number, "message": "why", "data": data}


# --- initialize and the list -----------------------------------------------------------------


def test_a_worker_hears_the_capabilities_of_the_editor_in_our_version() -> None:
    asked = {"protocolVersion": 2, "clientCapabilities": {"fs": {}}, "_meta": {"a": 1}}
    assert initialize.for_worker(asked) == asked | {"protocolVersion": 1}
    assert initialize.for_worker({})["clientCapabilities"] == {}


def sessions(count: int) -> list[SessionInfo]:
    """Newest first, as the daemon lists them."""
    return [
        cast(
            SessionInfo,
            {
                "session_id": f"id-{n}",
                "name": f"name-{n}",
                "cwd": f"/w/{n % 2}",
                "created_at": f"2026-01-01T00:{n // 60:02}:{n % 60:02}Z",
                "last_active_at": "2026-02-02T00:00:00Z",
            },
        )
        for n in reversed(range(count))
    ]


def test_a_listed_session_is_what_the_protocol_says() -> None:
    assert list_page(sessions(1), {}) == {
        "sessions": [
            {
                "sessionId": "id-0",
                "cwd": "/w/0",
                "title": "name-0",
                "updatedAt": "2026-02-02T00:00:00Z",
            }
        ]
    }


@pytest.mark.parametrize("cwd", [None, "/w/1", "/w/1/"])
def test_pages_of_the_list_have_every_session_once(cwd: str | None) -> None:
    known, listed, params = sessions(2 * PAGE + 50), list[str](), cast(Json, {"cwd": cwd})
    while True:
        page = list_page(known, params)
        assert 0 < len(page["sessions"]) <= PAGE
        listed += [s["sessionId"] for s in page["sessions"]]
        known = [s for s in known if s["session_id"] != listed[-1]]  # it may be gone meanwhile
        if "nextCursor" not in page:
            break
        params["cursor"] = page["nextCursor"]
    assert listed == [f"id-{n}" for n in reversed(range(2 * PAGE + 50)) if not cwd or n % 2]


@pytest.mark.parametrize("params", [{"cwd": 1}, {"cursor": []}])
def test_a_list_of_nonsense_is_refused(params: Json) -> None:
    with pytest.raises(Refused):
        list_page(sessions(1), params)


def test_mcp_servers_become_what_the_daemon_takes() -> None:
    assert servers_of(
        {
            "mcpServers": [
                {
                    "name": "git",
                    "command": "git-mcp",
                    "args": ["-q"],
                    "env": [{"name": "A", "value": "b"}],
                },
                {"name": "web", "type": "http", "url": "http://h", "headers": []},
                {"name": "My own", "_meta": {"a": 1}, "command": "x", "args": [], "env": []},
            ]
        }
    ) == {
        "git": {"command": "git-mcp", "args": ["-q"], "env": {"A": "b"}},
        "web": {"type": "http", "url": "http://h", "headers": {}},
        "My_own": {"command": "x", "args": [], "env": {}},
    }


@pytest.mark.parametrize(
    "servers",
    [["git"], "git", {"a": 1}, [{"command": "x"}], [{"name": "a", "env": {"A": "b"}}]],
)
def test_what_is_no_list_of_mcp_servers_is_refused(servers: Any) -> None:
    with pytest.raises(Refused) as refused:
        servers_of({"mcpServers": servers})
    assert refused.value.error["code"] == -32602


def test_of_two_servers_that_would_have_one_name_none_is_lost_silently() -> None:
    servers = [{"name": name, "command": "x"} for name in ("My own", "My_own")]
    with pytest.raises(Refused) as refused:
        servers_of({"mcpServers": servers})
    assert "My_own" in refused.value.error["message"]


@pytest.mark.parametrize("params", [{}, {"mcpServers": []}, {"mcpServers": None}])
def test_no_mcp_servers_are_fine(params: Json) -> None:
    assert servers_of(params) == {}


# --- stdin and stdout ------------------------------------------------------------------------


@asynccontextmanager
async def through_pipes() -> AsyncIterator[tuple[Stdio, list[int]]]:
    """The streams, and the editor's ends of their pipes: to write to, and to read from."""
    (source, to_agent), (from_agent, sink) = os.pipe(), os.pipe()
    ends = [to_agent, from_agent]
    stdio = await Stdio.open(source, sink)
    try:
        yield stdio, ends
    finally:
        await stdio.close()
        for end in (*ends, source, sink):
            os.close(end)


def hang_up(ends: list[int], which: int) -> None:
    """Close one of the editor's ends; the place is taken so that it is not closed twice."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, ends[which])
    os.close(null)


async def typed(data: bytes) -> list[bytes | None]:
    """The lines of an input that ends behind `data`."""
    async with through_pipes() as (stdio, ends):
        writing = asyncio.to_thread(write_all, ends[0], data)
        reading = collect(stdio)
        async with asyncio.TaskGroup() as group:
            lines = group.create_task(reading)
            await writing
            hang_up(ends, 0)
        return lines.result()


def write_all(end: int, data: bytes) -> None:
    while data:
        data = data[os.write(end, data) :]


async def collect(stdio: Stdio) -> list[bytes | None]:
    return [line async for line in stdio.lines()]


async def test_lines_end_at_a_newline_and_nowhere_else() -> None:
    text = "one\u2028still\x85one\r\n\n  \n{}\nlast"
    assert await typed(text.encode()) == ["one\u2028still\x85one\r\n".encode(), b"{}\n", b"last"]


async def test_a_line_of_16_mib_is_read_whole() -> None:
    line = b"x" * (LINE_BYTES - 1) + b"\n"
    assert await typed(line * 2) == [line, line]


async def test_a_line_that_is_too_long_is_told_once_and_skipped() -> None:
    too_long = b"x" * (3 * LINE_BYTES)
    assert await typed(b"a\n" + too_long + b"\nb\n" + too_long) == [b"a\n", None, b"b\n"]


async def test_what_was_sent_is_handed_out_before_the_end() -> None:
    async with through_pipes() as (stdio, ends):
        await stdio.send(b"one\n")
        await stdio.send(b"two\n")
        await stdio.close()
        assert os.read(ends[1], 100) == b"one\ntwo\n"


async def test_an_editor_that_reads_nothing_holds_up_nobody() -> None:
    async with through_pipes() as (stdio, ends), aclosing(stdio.lines()) as lines:
        for _ in range(8):
            await stdio.send(b"x" * bounds.MIB + b"\n")
        os.write(ends[0], b"ping\n")
        assert await anext(lines) == b"ping\n"


async def test_sending_waits_for_an_editor_that_leaves_too_much_unread() -> None:
    async with through_pipes() as (stdio, _):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                for _ in range(3):
                    await stdio.send(b"x" * (UNREAD_BYTES // 2))


@pytest.mark.parametrize("unread", [0, 8])
async def test_sending_to_an_editor_that_is_gone_raises(unread: int) -> None:
    async with through_pipes() as (stdio, ends):
        await stdio.send(b"x" * unread * bounds.MIB)
        hang_up(ends, 1)
        with pytest.raises(ConnectionError):
            while True:
                await stdio.send(b"x\n")
                await asyncio.sleep(0)


async def test_files_will_do_for_streams() -> None:
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as sink:
        source.write(b"a\nb\n")
        source.seek(0)
        stdio = await Stdio.open(source.fileno(), sink.fileno())
        assert await collect(stdio) == [b"a\n", b"b\n"]
        await stdio.send(b"c\n")
        await stdio.close()
        sink.seek(0)
        assert sink.read() == b"c\n"
