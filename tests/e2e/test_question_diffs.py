"""A question about a file shows what would become of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from session_worker.demo_model import Reply
from sidecar.protocol import bounds
from tests.support.acp_client import over_websocket
from tests.support.questions import Ask, answered, configure, edit, read, write
from tests.support.scripted import FINE, Scripted

Json = dict[str, Any]


def shown(scripted: Scripted, *calls: Json) -> Json | None:
    """The diff of the question that the last of `calls` leads to, which is declined."""
    replies = [Reply([call]) for call in calls]
    question, _ = answered(scripted, "reject_once", *replies, FINE)
    content = question["toolCall"].get("content")
    return content and content[0]


def test_an_edit_and_a_write_are_shown_as_diffs(session: Scripted, work: Path) -> None:
    file = work.resolve() / "f"
    file.write_text("one\ntwo\n")
    diff = {"type": "diff", "path": str(file), "oldText": "one\ntwo\n", "newText": "one\n2\n"}
    assert shown(session, read("f"), edit("f", "two", "2")) == diff
    assert shown(session, write("f", "x\n")) == {**diff, "newText": "x\n"}
    new = {**diff, "path": str(file.with_name("new")), "oldText": None, "newText": "x\n"}
    assert shown(session, write("new")) == new
    outside = shown(session, write(work.parent / "outside", "x\n"))
    assert outside and outside["path"] == str(work.parent.resolve() / "outside")
    assert file.read_text() == "one\ntwo\n"


def test_what_cannot_be_shown_is_asked_all_the_same(ask: Ask, work: Path) -> None:
    configure(work, '[permissions]\ndeny = ["read(.env)"]\n')
    session = ask()
    (work / ".env").write_text("KEY=secret\n")
    (work / "binary").write_bytes(b"a\0b")
    (work / "f").write_text("one\n")
    assert shown(session, edit("f", "missing", "x")) is None
    assert shown(session, write("binary")) is None
    assert shown(session, write(".env")) is None
    assert shown(session, write("f", "x" * bounds.QUESTION_DIFF_CHARS)) is None
    assert shown(session, edit("nowhere", "a", "b")) is None


async def test_an_editor_gets_the_diff_with_the_question(session: Scripted) -> None:
    session.answers.extend([Reply([write("new", "x\n")]), FINE])
    async with over_websocket(session.endpoint) as client:
        await client.new()
        await client.begin("go")
        question = await client.question()
        assert question["params"]["toolCall"]["content"][0]["newText"] == "x\n"
        await client.choose(question, "reject_once")
