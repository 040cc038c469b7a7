"""Files that a client has open: read and written through it, and what becomes of that when it
fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model import Reply
from sidecar.protocol import bounds
from tests.support.acp_client import NOTICES, AcpClient, over_http, over_websocket, told
from tests.support.acp_editor import BROKEN, FILES, READ, READS, WRITE, WRITES, Buffers
from tests.support.questions import edit, notices, read, results, write
from tests.support.scripted import FINE, Scripted, bash

Json = dict[str, Any]
TRANSPORTS: dict[str, Any] = {
    "http": over_http,
    "late http": lambda endpoint, offers: over_http(endpoint, offers, streams="late"),
    "websocket": over_websocket,
}


@pytest.fixture(params=TRANSPORTS)
def connect(request: pytest.FixtureRequest) -> Any:
    return TRANSPORTS[request.param]


@pytest.fixture
def file(work: Path) -> Path:
    path = work.resolve() / "f"
    path.write_text("saved\n")
    return path


async def test_what_is_not_saved_yet_is_read_and_edited_in_the_client(
    scripted: Scripted, connect: Any, file: Path
) -> None:
    buffers = Buffers({file: "unsaved\r\nlines\r\n"})
    async with connect(scripted.endpoint, FILES) as client, buffers.of(client):
        await client.new()
        page, edited = await told(client, scripted, read("f"), edit(file, "lines", "two\nlines"))
        assert page == "     1\tunsaved\n     2\tlines\n"
        assert edited == "edited f: 1 replacement at line 2"
        assert buffers.texts[file] == "unsaved\r\ntwo\r\nlines\r\n"
        assert file.read_text() == "saved\n"
        assert {request["params"]["sessionId"] for request in buffers.asked} == {client.session_id}
        await client.until(lambda _: diffs(client), "the diff of the edit")
        assert diffs(client)[0]["oldText"] == "unsaved\r\nlines\r\n"


def diffs(client: AcpClient) -> list[Json]:
    updates = client.updates("tool_call_update")
    return [c for u in updates for c in u.get("content", ()) if c["type"] == "diff"]


async def test_a_new_file_is_written_by_the_client_in_a_directory_that_is_there(
    scripted: Scripted, work: Path
) -> None:
    buffers = Buffers()
    async with buffers.open_in(scripted.endpoint) as client:
        new = work.resolve() / "a/b/new"
        (said,) = await told(client, scripted, write("a/b/new", "text\n"))
        assert said == "created a/b/new: 1 lines, 5B"
        assert buffers.texts == {new: "text\n"}
        assert new.parent.is_dir() and not new.exists()


async def test_only_the_client_whose_prompt_it_is_is_asked(scripted: Scripted, file: Path) -> None:
    mine, other = Buffers({file: "mine\n"}), Buffers({file: "other\n"})
    async with (
        over_websocket(scripted.endpoint, FILES) as client,
        over_websocket(scripted.endpoint, FILES) as viewer,
        mine.of(client),
        other.of(viewer),
    ):
        await client.new()
        await viewer.new()
        assert await told(client, scripted, read("f")) == ["     1\tmine\n"]
        await asyncio.to_thread(scripted.completes, Reply([read("f")]))
        assert results(scripted) == ["     1\tsaved\n"]
        assert other.asked == [] and len(mine.asked) == 1


async def test_what_is_no_text_of_the_session_never_goes_to_the_client(
    scripted: Scripted, work: Path, tmp_path: Path
) -> None:
    png = bytes.fromhex("89504e470d0a1a0a") + b"\0" * 8
    for name, content in {"image": png, "nul": b"a\0b", "latin": b"caf\xe9\n"}.items():
        (work / name).write_bytes(content)
    (work / "directory").mkdir()
    (tmp_path / "outside").write_text("x")
    (work / "link").symlink_to(tmp_path / "outside")
    names = ["image", "nul", "latin", "directory", "link", "../outside"]
    buffers = Buffers()
    async with buffers.open_in(scripted.endpoint) as client:
        said = await told(client, scripted, *map(read, names), write("latin", "x"))
    assert "caf\ufffd" in said[2] and "is a directory" in said[3]
    assert said[-1].startswith("replaced latin")
    assert buffers.asked == []


async def test_one_that_fails_to_read_leaves_it_to_the_disk_and_people_are_told_once(
    scripted: Scripted, file: Path
) -> None:
    for nonsense in (BROKEN, {"result": {"content": 1}}, {"result": {"content": "\ud800"}}):
        buffers = Buffers()
        buffers.answers[READ] = lambda _, answer=nonsense: answer
        offers = FILES | NOTICES
        async with buffers.open_in(scripted.endpoint, offers) as client:
            said = await told(client, scripted, read("f"), read("f"))
            assert said == ["     1\tsaved\n"] * 2
            assert len(buffers.asked) == 2
            assert len(client.updates("notice")) == 1
    assert "locked" in notices(scripted)[0]


async def test_a_file_that_neither_has_is_not_found(scripted: Scripted, file: Path) -> None:
    (file.parent / "near").write_text("")
    buffers = Buffers()
    async with buffers.open_in(scripted.endpoint) as client:
        (said,) = await told(client, scripted, read("neat"))
        assert said == "there is no neat; did you mean: near"
        buffers.answers[READ] = lambda _: {"result": {"content": ""}}
        assert await told(client, scripted, read("neat")) == [said]
        buffers.texts[file.parent / "neat"] = "only a buffer"
        buffers.answers[READ] = buffers.read
        assert await told(client, scripted, read("neat")) == ["     1\tonly a buffer\n"]
    assert notices(scripted) == []


async def test_a_refused_write_is_an_error_and_nothing_is_written(
    scripted: Scripted, file: Path
) -> None:
    buffers = Buffers()
    buffers.answers[WRITE] = lambda _: BROKEN
    async with buffers.open_in(scripted.endpoint) as client:
        said = await told(client, scripted, read("f"), edit(file, "saved", "new"), write("g"))
    reason = "the client refused fs/write_text_file: the buffer is locked; nothing was written"
    assert said[1:] == [f"f: {reason}", f"g: {reason}"]
    assert file.read_text() == "saved\n" and not (file.parent / "g").exists()


@pytest.mark.soak
async def test_a_client_that_never_answers_costs_its_time_once(
    scripted: Scripted, file: Path
) -> None:
    buffers = Buffers()
    buffers.answers[READ] = buffers.answers[WRITE] = lambda _: None
    async with buffers.open_in(scripted.endpoint) as client:
        said = await told(client, scripted, read("f"), edit(file, "saved", "new"))
        assert said[0] == "     1\tsaved\n"
        assert "may or may not be written" in said[1]
        assert file.read_text() == "saved\n"
        assert buffers.methods == [READ, WRITE]
        cancelled = [m["params"] for m in client.seen if m.get("method") == "$/cancel_request"]
        assert cancelled == [{"requestId": request["id"]} for request in buffers.asked]


async def test_one_that_leaves_in_the_middle_of_a_call_is_not_waited_for(
    scripted: Scripted, connect: Any, file: Path
) -> None:
    scripted.answers.extend([Reply([read("f")]), Reply([write("g", "x")]), FINE])
    async with connect(scripted.endpoint, FILES) as client:
        await client.new()
        await client.begin("go")
        await client.until(lambda m: m.get("method") == READ, "it is asked")
    await asyncio.to_thread(scripted.was_asked, 3)
    assert results(scripted) == ["created g: 1 lines, 1B"]
    assert (file.parent / "g").read_text() == "x"


async def test_an_answer_that_is_too_large_is_none(scripted: Scripted, file: Path) -> None:
    async with over_websocket(scripted.endpoint, FILES) as client:
        scripted.answers.extend([Reply([read("f")]), FINE])
        await client.new()
        await client.begin("go")
        request = await client.until(lambda m: m.get("method") == READ, "it is asked")
        with suppress(ConnectionError):  # it hangs up on who says so much
            await client.reply(request, {"content": "x" * 30 * bounds.MIB})
        await asyncio.to_thread(scripted.was_asked, 2)
        assert results(scripted) == ["     1\tsaved\n"]


async def test_a_write_that_is_cancelled_is_told_as_it_came_out(
    scripted: Scripted, file: Path
) -> None:
    buffers = Buffers()
    buffers.answers[WRITE] = lambda _: None
    async with buffers.open_in(scripted.endpoint) as client:
        for name, outcome in (("g", "created g"), ("h", "cancelled by user")):
            scripted.answers.append(Reply([write(name, "x")]))
            prompt = await client.begin("go")
            path = str(file.parent / name)
            request = await client.until(
                lambda m, path=path: m.get("method") == WRITE and m["params"]["path"] == path, name
            )
            await client.notify("session/cancel", **client.named)
            if name == "g":
                await client.reply(request, {})
            assert (await client.answer_to(prompt))["result"]["stopReason"] == "cancelled"
            scripted.answers.append(FINE)
            await client.prompt()
            assert outcome in str(scripted.sent)


async def test_a_change_that_the_model_has_not_seen_is_not_overwritten(
    scripted: Scripted, file: Path
) -> None:
    buffers = Buffers({file: "one\n"})
    async with buffers.open_in(scripted.endpoint) as client:
        assert "read it first" in (await told(client, scripted, edit(file, "one", "1")))[0]
        await told(client, scripted, read("f"))
        buffers.texts[file] = "one\ntwo\n"  # a person types
        assert "read it again" in (await told(client, scripted, edit(file, "one", "1")))[0]
        page, _ = await told(client, scripted, read("f"), edit(file, "one", "1"))
        assert page.endswith("two\n") and buffers.texts[file] == "1\ntwo\n"
        file.write_text("1\ntwo\n")  # and saves, which is no change
        (said,) = await told(client, scripted, write("f", "three\n"))
        assert said.startswith("replaced f")
        # what a command writes past the client is one, and that the client is stale no excuse
        _, said = await told(client, scripted, bash("echo four > f"), write("f", "five\n"))
        assert "read it again" in said
        assert buffers.texts[file] == "three\n"


async def test_one_that_turns_line_ends_around_gets_those_of_the_disk(
    scripted: Scripted, file: Path
) -> None:
    file.write_bytes(b"one\r\ntwo\r\n")
    buffers = Buffers({file: "one\ntwo\n"})
    async with buffers.open_in(scripted.endpoint) as client:
        said = await told(client, scripted, read("f"), edit(file, "two", "2\n3"))
        assert said[1].startswith("edited f") and buffers.texts[file] == "one\r\n2\r\n3\r\n"
        buffers.texts[file] = "one\n2\n3\n"  # as it reads what it has written
        (said,) = await told(client, scripted, edit(file, "2", "4"))
        assert said.startswith("edited f") and buffers.texts[file] == "one\r\n4\r\n3\r\n"


async def test_one_that_only_reads_is_not_written_past(scripted: Scripted, file: Path) -> None:
    buffers = Buffers({file: "unsaved\n"})
    async with buffers.open_in(scripted.endpoint, READS) as client:
        _, said = await told(client, scripted, read("f"), edit(file, "unsaved", "new"))
        assert "has unsaved changes" in said
        del buffers.texts[file]
        _, said = await told(client, scripted, read("f"), edit(file, "saved", "new"))
        assert said.startswith("edited f") and file.read_text() == "new\n"


async def test_one_that_only_writes_is_given_what_the_disk_has(
    scripted: Scripted, file: Path
) -> None:
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    buffers = Buffers()
    async with buffers.open_in(scripted.endpoint, WRITES) as client:
        _, said = await told(client, scripted, read("f"), edit(file, "two", "2\n3"))
        assert said.startswith("edited f")
        assert buffers.texts[file] == "\ufeffone\r\n2\r\n3\r\n"
        assert buffers.methods == [WRITE]
