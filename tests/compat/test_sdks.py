"""The official SDKs of the Agent Client Protocol, unmodified: one behaviour, every transport."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.editors import KINDS, PYTHON, TCP, Editors, heard
from tests.support.daemon import Daemon
from tests.support.processes import eventually
from tests.support.stdio_agent import StdioAgent, texts

NOWHERE = "00000000-0000-4000-8000-000000000000"


@pytest.fixture(params=KINDS)
def editors(
    request: pytest.FixtureRequest,
    sdks: Callable[[str], StdioAgent],
    daemon: Daemon,
    work: Path,
) -> Editors:
    return Editors(request.param, sdks, daemon, work)


def end(editor: StdioAgent, prompt: int) -> str:
    """The stop reason."""
    return editor.answered(prompt)["result"]["stopReason"]


def choose(editor: StdioAgent, kind: str) -> None:
    """Answer the next question."""
    question = editor.until(lambda m: m.get("method") == "session/request_permission")
    (option,) = [o["optionId"] for o in question["params"]["options"] if o["kind"] == kind]
    editor.answer(question, {"outcome": {"outcome": "selected", "optionId": option}})


def test_a_new_session_streams_the_answer_to_a_prompt(editors: Editors, work: Path) -> None:
    with editors.open() as editor:
        session_id = editor.new(work)
        stop_reason, said = editor.prompt(session_id, "run `echo $((6 * 7))`")
        assert (stop_reason, "42" in said) == ("end_turn", True)
        assert len(list(texts(editor.heard, session_id))) > 2, "it comes in pieces"
        assert session_id in [s["sessionId"] for s in editor.call("session/list")["sessions"]]


@pytest.mark.parametrize(("kind", "is_done"), [("allow_once", True), ("reject_once", False)])
def test_a_tool_waits_for_a_permission(
    editors: Editors, work: Path, kind: str, is_done: bool
) -> None:
    with editors.open() as editor:
        prompt = editor.ask_prompt(editor.new(work), "run `touch made`")
        choose(editor, kind)
        assert end(editor, prompt) == "end_turn"
        assert (work / "made").exists() is is_done


def test_a_prompt_can_be_cancelled_and_another_follows(editors: Editors, work: Path) -> None:
    with editors.open() as editor:
        session_id = editor.new(work)
        prompt = editor.ask_prompt(session_id, "run `touch up; sleep 600`")
        choose(editor, "allow_once")
        eventually(lambda: (work / "up").exists(), "the command runs")
        editor.tell("session/cancel", sessionId=session_id)
        assert end(editor, prompt) == "cancelled"
        assert editor.prompt(session_id, "hi")[0] == "end_turn"


def test_a_load_has_replayed_everything_before_it_is_answered(editors: Editors, work: Path) -> None:
    with editors.open() as editor:
        session_id = editor.new(work)
        editor.prompt(session_id, "run `echo first`")
        editor.prompt(session_id, "hi")
        told = "".join(texts(editor.heard, session_id))
    with editors.open() as editor:
        editor.call("session/load", sessionId=session_id, cwd=str(work), mcpServers=[])
        came = heard(editor)
        answer = next(i for i, m in enumerate(came) if "modes" in m.get("result", {}))
        replay = came[:answer]
        assert "".join(texts(replay, session_id)) == told
        asked = list(texts(replay, session_id, "user_message_chunk"))
        assert asked == ["run `echo first`", "hi"]
        assert editor.prompt(session_id, "hi")[0] == "end_turn"


def test_a_session_that_is_not_there_is_refused_and_the_connection_lives(
    editors: Editors, work: Path
) -> None:
    with editors.open() as editor:
        session_id = editor.new(work)
        nowhere = {"sessionId": NOWHERE, "cwd": str(work), "mcpServers": []}
        for method in ("session/load", "session/resume"):
            assert editor.refused(method, **nowhere)["code"] == -32002
        block = {"type": "text", "text": "hi"}
        prompt = editor.refused("session/prompt", sessionId=NOWHERE, prompt=[block])
        assert prompt["code"] == -32002
        assert editor.prompt(session_id, "hi")[0] == "end_turn"


def test_a_client_that_dies_in_the_middle_of_a_run_finds_it_again(
    editors: Editors, work: Path
) -> None:
    with editors.open() as editor:
        session_id = editor.new(work)
        editor.ask_prompt(session_id, "run `touch made`")
        editor.until(lambda m: m.get("method") == "session/request_permission")
        editor.process.kill()
        editor.process.wait()
    with editors.open() as editor:
        editor.ask("session/load", sessionId=session_id, cwd=str(work), mcpServers=[])
        choose(editor, "allow_once")
        editor.until(lambda _: "Done." in "".join(texts(editor.heard, session_id)))
        assert (work / "made").exists()
        assert editor.prompt(session_id, "hi")[0] == "end_turn"


@pytest.mark.parametrize("editors", PYTHON, indirect=True)
def test_files_are_read_and_written_through_the_client(editors: Editors, work: Path) -> None:
    file = work.resolve() / "notes.txt"
    file.write_text("saved\n")
    with editors.open(fs={"readTextFile": True, "writeTextFile": True}) as editor:
        prompt = editor.ask_prompt(editor.new(work), "replace `unsaved` with `new` in notes.txt")

        def give() -> None:
            request = editor.until(lambda m: m.get("method") == "fs/read_text_file")
            assert request["params"]["path"] == str(file)
            editor.answer(request, {"content": "unsaved\n"})

        give()
        choose(editor, "allow_once")
        give()
        request = editor.until(lambda m: m.get("method") == "fs/write_text_file")
        assert request["params"]["content"] == "new\n"
        editor.answer(request, {})
        assert end(editor, prompt) == "end_turn"
        assert file.read_text() == "saved\n"


@pytest.mark.parametrize("editors", TCP, indirect=True)
def test_who_has_not_the_token_is_told_so(editors: Editors) -> None:
    with editors.start(Authorization="Bearer of-another") as editor:
        assert "401" in editor.refused("initialize", protocolVersion=1)["message"]
