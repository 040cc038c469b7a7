"""How a transcript becomes the updates of `session/load`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from session_worker.http.acp_c.replay import Replay

Json = dict[str, Any]


def started(run_id: str, prompt: str, **more: Any) -> Json:
    return {"n": 0, "kind": "run_started", "run_id": run_id, "prompt": prompt, **more}


def message(role: str, *blocks: Json, run_id: str = "r", n: int = 1, **more: Any) -> Json:
    said = {"role": role, "content": list(blocks)}
    return {"n": n, "kind": "message", "run_id": run_id, "message": said, **more}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def call(call_id: str, command: str = "ls", name: str = "bash") -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"command": command}}


def result(call_id: str, content: str = "out", **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def replayed(*records: Json) -> list[Json]:
    replay = Replay(Path("/w"))
    return [update for record in records for update in replay.feed(record)]


def kinds(shown: list[Json]) -> list[str]:
    return [update["sessionUpdate"] for update in shown]


def test_a_prompt_is_what_the_user_said_and_no_more() -> None:
    shown = replayed(
        started("r", "go"),
        message("user", text("go"), text("context of a hook")),
        message("assistant", {"type": "thinking", "thinking": "hm"}, text("gone"), n=2),
        message("user", text("a word of a Stop hook")),
    )
    assert kinds(shown) == ["user_message_chunk", "agent_thought_chunk", "agent_message_chunk"]
    assert shown[0]["content"] == text("go")
    assert shown[1]["messageId"] == shown[2]["messageId"] != shown[0]["messageId"]


def test_a_prompt_that_was_never_said_is_not_shown() -> None:
    assert replayed(started("r", "blocked by a hook")) == []


def test_all_of_a_prompt_is_shown() -> None:
    image = {"type": "image", "source": {"data": "aGk=", "media_type": "image/png"}}
    shown = replayed(
        started("r", "see", content=[text("see"), image]), message("user", text("see"), image)
    )
    assert [update["content"]["type"] for update in shown] == ["text", "image"]


def test_a_call_is_shown_with_its_end() -> None:
    shown = replayed(
        message("assistant", call("a"), call("b")),
        message("user", result("a"), result("b", is_error=True)),
    )
    assert [(u["toolCallId"], u["status"], u["kind"]) for u in shown] == [
        ("a", "completed", "execute"),
        ("b", "failed", "execute"),
    ]
    assert shown[0]["title"] == "ls" and shown[0]["rawInput"] == {"command": "ls"}


def test_a_call_without_an_end_is_left_to_the_events_that_follow() -> None:
    replay = Replay(Path("/w"))
    assert replay.feed(message("assistant", text("so"), call("a"))) != []
    assert [update["toolCallId"] for update in replay.open_calls()] == ["a"]
    replay.feed(message("user", result("a")))
    assert replay.open_calls() == []


def test_a_plan_is_shown_as_one() -> None:
    todos = {"todos": [{"content": "x", "status": "pending"}]}
    use = {"type": "tool_use", "id": "a", "name": "todo_write", "input": todos}
    shown = replayed(message("assistant", use), message("user", result("a")))
    assert kinds(shown) == ["tool_call", "plan"]
    assert shown[1]["entries"] == [{"content": "x", "priority": "medium", "status": "pending"}]


def test_calls_of_unknown_tools_and_strange_inputs_are_shown_somehow() -> None:
    shown = replayed(
        message("assistant", call("a", name="gone"), {**call("b"), "input": {"INVALID_JSON": "{"}}),
        message("user", result("a"), result("b"), result("never-called")),
    )
    assert [update["kind"] for update in shown] == ["other", "other", "other"]


def test_the_newest_event_that_is_covered_is_known() -> None:
    replay = Replay(Path("/w"))
    assert replay.seq is None
    for seq in (4, 9):
        replay.feed(message("assistant", text("x"), seq=seq))
    replay.feed({"n": 3, "kind": "api_call", "run_id": "r"})
    assert replay.seq == 9


CODE = {
    "type": "server_tool_use",
    "id": "s",
    "name": "code_execution",
    "input": {"code": "x = await bash()\nprint(x)"},
}
CALLER = {"type": "code_execution_20260120", "tool_id": "s"}
RAN = {"type": "code_execution_tool_result", "tool_use_id": "s", "content": {"return_code": 1}}


def test_a_call_of_the_provider_begins_before_the_calls_of_its_code_and_ends_after_them() -> None:
    begun, called, ended, said = replayed(
        message("assistant", CODE, {**call("a"), "caller": CALLER}),
        message("user", result("a")),
        message("assistant", RAN, text("so"), n=2),
        {"n": 3, "kind": "run_finished", "run_id": "r", "result": {}},
    )
    assert (begun["sessionUpdate"], begun["status"]) == ("tool_call", "in_progress")
    assert (begun["toolCallId"], begun["title"]) == ("s", "x = await bash()…")
    assert called["_meta"] == {"sidecar/caller": CALLER, "sidecar/kept_out": 1}
    assert (ended["toolCallId"], ended["status"]) == ("s", "failed")
    assert said["sessionUpdate"] == "agent_message_chunk"


def test_a_call_of_the_provider_that_never_ended_is_given_up() -> None:
    for end in (
        {"n": 3, "kind": "run_finished", "run_id": "r", "result": {}},
        message("user", text("next"), run_id="r2"),
    ):
        shown = replayed(message("assistant", CODE), end)
        assert [u["status"] for u in shown if u["toolCallId"] == "s"] == ["in_progress", "failed"]
    assert len(replayed(message("assistant", CODE))) == 1, "its result may still come"
