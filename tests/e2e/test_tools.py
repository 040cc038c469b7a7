"""The tools of a real session: what the model is told of a call, and what clients see of it."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import zlib
from pathlib import Path
from typing import Any

from session_worker.demo_model import Reply, Streamed, tool_use
from sidecar.protocol.bounds import (
    KIB,
    MESSAGE_RESULTS_CHARS,
    PARALLEL_TOOLS,
    RESULT_CHARS_MIN,
    SHOWN_IMAGE_CHARS,
)
from tests.support.cli import Cli
from tests.support.processes import eventually
from tests.support.scripted import FINE, Scripted, bash
from tests.support.tool_calls import background, output, refused, results, told

Json = dict[str, Any]


def updates(scripted: Scripted, kind: str) -> list[Json]:
    return [u for u in scripted.events("update") if u["sessionUpdate"] == kind]


def ended(scripted: Scripted) -> list[Json]:
    """The last update of each call, in the order of their ends."""
    last = updates(scripted, "tool_call_update")
    return [update for update in last if update["status"] in ("completed", "failed")]


def png(side: int) -> bytes:
    """An image that cannot be compressed: each byte differs from its neighbours."""
    rows = b"".join(
        b"\0" + bytes((x * x * (y + 7)) % 251 for x in range(side)) for y in range(side)
    )
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows, 0)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


# --- events --------------------------------------------------------------------------------


def test_a_command_is_announced_shown_live_and_ended(scripted: Scripted, work: Path) -> None:
    command = "echo one; until [ -e go ]; do sleep 0.02; done; echo two >&2; exit 3"
    run_id = scripted.start(Reply([bash(command)]), FINE)
    first = eventually(lambda: scripted.events("tool_output"), "it is live")
    assert [event["text"] for event in first] == ["one\n"]
    assert scripted.run(run_id)["status"] == "in-progress"
    (work / "go").touch()
    scripted.ended(run_id)
    [announced] = updates(scripted, "tool_call")
    started, done = updates(scripted, "tool_call_update")
    assert (announced["status"], announced["kind"]) == ("pending", "execute")
    assert announced["rawInput"] == {"command": command}
    assert (started["status"], started["title"]) == ("in_progress", command)
    assert done["status"] == "failed"
    assert done["content"][0]["content"]["text"].startswith("one\ntwo\n[exit 3 · ")
    assert (done["rawOutput"]["exit_code"], done["rawOutput"]["truncated"]) == (3, False)
    live = scripted.events("tool_output")
    assert [event["text"] for event in live] == ["one\n", "two\n"]
    ids = {event["tool_call_id"] for event in live}
    assert ids == {u["toolCallId"] for u in (announced, started, done)}


def test_a_change_of_a_file_is_shown_as_a_diff_where_it_is(scripted: Scripted, work: Path) -> None:
    edit = {"old_string": "one", "new_string": "two"}
    told(scripted, tool_use("write_file", {"path": "sub/f.txt", "content": "one\r\n"}))
    told(scripted, tool_use("edit_file", {"path": "sub/f.txt", "edits": [edit]}))
    path = str(work / "sub" / "f.txt")
    started = [u for u in updates(scripted, "tool_call_update") if u["status"] == "in_progress"]
    assert [(u["kind"], u["locations"]) for u in started] == [("edit", [{"path": path}])] * 2
    diffs = [update["content"][1] for update in ended(scripted)]
    assert diffs == [
        {"type": "diff", "path": path, "oldText": None, "newText": "one\r\n"},
        {"type": "diff", "path": path, "oldText": "one\r\n", "newText": "two\r\n"},
    ]
    assert (work / "sub" / "f.txt").read_bytes() == b"two\r\n"


def test_the_plan_is_an_update_of_its_own(scripted: Scripted) -> None:
    todos = [{"content": "look", "status": "completed"}, {"content": "act", "status": "pending"}]
    assert told(scripted, tool_use("todo_write", {"todos": todos})) == "1 of 2 completed"
    [plan] = updates(scripted, "plan")
    assert plan["entries"] == [{**todo, "priority": "medium"} for todo in todos]
    two = [todo | {"status": "in_progress"} for todo in todos]
    assert "at most one may be" in refused(scripted, tool_use("todo_write", {"todos": two}))
    assert len(updates(scripted, "plan")) == 1


# --- results -------------------------------------------------------------------------------


def test_calls_that_read_share_and_are_answered_in_their_order(
    scripted: Scripted, work: Path
) -> None:
    """The first ends last: what it waits for is only done when the others have been seen to end."""
    (work / "f.txt").write_text("text\n")
    told(scripted, background("until [ -e go ]; do sleep 0.02; done"))
    others = [
        tool_use("read_file", {"path": "f.txt"}),
        tool_use("glob", {"pattern": "*.txt"}),
        tool_use("grep", {"pattern": "t.x"}),
        tool_use("list_dir", {}),
    ]
    run_id = scripted.start(Reply([output(block_s=30), *others]), FINE)
    eventually(lambda: len(ended(scripted)) == 1 + len(others), "the others have ended")
    (work / "go").touch()
    scripted.ended(run_id)
    texts = [block["content"] for block in scripted.sent[-1]["content"]]
    said = ["ended: exit 0", "     1\ttext", "f.txt\n[files: 1]", "f.txt:1:text", "f.txt  5B"]
    assert [part in text for part, text in zip(said, texts, strict=True)] == [True] * 5, texts


def test_a_command_after_an_edit_sees_it_and_a_read_before_does_not(
    scripted: Scripted, work: Path
) -> None:
    (work / "f").write_text("old\n")
    edit = {"old_string": "old", "new_string": "new"}
    read = tool_use("read_file", {"path": "f"})
    before, _, command, after = results(
        scripted, read, tool_use("edit_file", {"path": "f", "edits": [edit]}), bash("cat f"), read
    )
    assert [r["content"].split("\n")[0].strip() for r in (before, command, after)] == [
        "1\told",
        "new",
        "1\tnew",
    ]


def test_what_is_too_long_is_kept_in_a_file_that_can_be_read(scripted: Scripted) -> None:
    text = told(scripted, bash("seq 100000"))
    assert text.startswith("1\n2\n")
    assert "\n99999\n100000\n[exit 0 · " in text
    file = re.search(r"full: (.*)\]$", text)
    assert file
    page = told(scripted, tool_use("read_file", {"path": file[1], "offset": 50000, "limit": 1}))
    assert page.startswith(" 50000\t50000\n")
    found = told(scripted, tool_use("grep", {"path": file[1], "pattern": "^77777$"}))
    assert ":77777:77777\n" in found


def test_the_results_of_one_turn_share_a_bound_and_each_says_where_it_is_whole(
    scripted: Scripted,
) -> None:
    count = PARALLEL_TOOLS + 1
    texts = [
        r["content"]
        for r in results(scripted, *[bash(f"seq {n}0000") for n in range(1, count + 1)])
    ]
    assert sum(map(len, texts)) <= MESSAGE_RESULTS_CHARS + count * RESULT_CHARS_MIN
    assert len(texts[-1]) <= RESULT_CHARS_MIN + 200
    assert texts[-1].startswith("1\n2\n")
    for number, text in enumerate(texts, 1):
        files = [Path(path) for path in re.findall(r"full: (.*?)\]", text)]
        assert any(file.read_text().startswith("1\n2\n") for file in files)
        assert text.count(f"\n{number}0000\n[exit 0") == 1


def test_images_and_pdfs_go_to_the_model_and_only_small_ones_into_the_ring(
    scripted: Scripted, work: Path
) -> None:
    files = {"small.png": png(20), "large.png": png(400), "a.pdf": b"%PDF-1.7\n" + b"x" * 400_000}
    for name, data in files.items():
        (work / name).write_bytes(data)
    reads = [tool_use("read_file", {"path": name}) for name in files]
    shown = [result["content"][1] for result in results(scripted, *reads)]
    kinds = [(block["type"], block["source"]["media_type"]) for block in shown]
    assert kinds == [("image", "image/png")] * 2 + [("document", "application/pdf")]
    assert len(shown[1]["source"]["data"]) > SHOWN_IMAGE_CHARS
    blocks = sorted(json.dumps(update["content"][1]["content"]) for update in ended(scripted))
    small = {"type": "image", "data": shown[0]["source"]["data"], "mimeType": "image/png"}
    assert blocks == sorted(
        json.dumps(block)
        for block in (
            small,
            {"type": "text", "text": "[image/png, shown to the model]"},
            {"type": "text", "text": "[application/pdf, shown to the model]"},
        )
    )
    assert len(json.dumps(scripted.endpoint.events())) < 64 * KIB


def test_nonsense_is_answered_with_its_reason_and_the_session_goes_on(scripted: Scripted) -> None:
    def raw(text: str) -> Streamed:
        start = {"type": "tool_use", "id": f"toolu_{zlib.crc32(text.encode())}", "name": "bash"}
        delta = {"type": "input_json_delta", "partial_json": text}
        return Streamed({**start, "input": {}}, [delta])

    calls = {
        "there is no tool 'bosh', only: bash, ": tool_use("bosh", {}),
        "timeout_s: Input should be a valid integer": tool_use(
            "bash", {"command": "true", "timeout_s": "soon"}
        ),
        "edits.0.new_string: Field required": tool_use(
            "edit_file", {"path": "f", "edits": [{"old_string": "a"}]}
        ),
        "block_s: Input should be less than or equal to 60": output(block_s=61),
        "contains a NUL character": tool_use("bash", {"command": "echo \0"}),
        "invalid JSON": raw('{"command": "\\ud83d"}'),
        "its input is invalid JSON": raw('{"command": ' + "[" * 5000),
        "there is no no\\x1b[31m": tool_use("read_file", {"path": "no\x1b[31m"}),
    }
    for said, result in zip(calls, results(scripted, *calls.values()), strict=True):
        assert result["is_error"]
        assert said in result["content"], result
        assert "\x1b" not in result["content"]


# --- what commands run in ------------------------------------------------------------------


def test_the_environment_of_commands_has_no_key_and_asks_nobody(
    scripted: Scripted, work: Path
) -> None:
    told(scripted, bash("env -0 > env; git init -q"))
    env = dict(line.split("=", 1) for line in (work / "env").read_text().split("\0") if line)
    ours = [name for name in env if name.startswith(("ANTHROPIC_", "SIDECAR_"))]
    assert ours == ["SIDECAR_SESSION"]
    assert "sk-test" not in json.dumps(env)
    assert (env["TERM"], env["NO_COLOR"], env["PAGER"]) == ("dumb", "1", "cat")
    assert (env["GIT_TERMINAL_PROMPT"], env["GIT_PAGER"]) == ("0", "cat")
    asks = "read x; echo $?; (: < /dev/tty) 2>/dev/null; echo $?; git commit --allow-empty -m x -e"
    lines = told(scripted, bash(f"export GIT_AUTHOR_NAME=a GIT_COMMITTER_NAME=a EMAIL=a@b; {asks}"))
    assert lines.startswith("1\n1\n")
    assert subprocess.run(["git", "-C", work, "rev-parse", "HEAD"], capture_output=True).stdout


CONTROLS = "\x1b[31mred\x1b[0m \x1b]52;c;Y2xpcA==\x07\x1b]0;title\x1b\\\x9b1mx 1%\r2%\n"


def test_control_sequences_reach_neither_the_model_nor_a_terminal(
    scripted: Scripted, work: Path, cli: Cli
) -> None:
    (work / "f").write_text(CONTROLS)
    (work / "named \x1b[31m").touch()
    calls = [
        bash("cat f"),
        tool_use("list_dir", {}),
        tool_use("read_file", {"path": "f"}),
    ]
    scripted.answers.extend([Reply(calls), FINE])
    printed = cli("prompt", scripted.endpoint.session_id, "go")
    assert printed.returncode == 0, printed.stderr
    command, listing, _ = (block["content"] for block in scripted.sent[-1]["content"])
    assert command.startswith("2%\n[exit 0")
    assert "named \\x1b[31m  0B" in listing
    live = json.dumps(scripted.events("tool_output"))
    assert "red 1mx 1%\\n2%\\n" in live
    for text in (command, listing, live, printed.stdout, printed.stderr):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]|\\u001b|52;c", text), repr(text)
