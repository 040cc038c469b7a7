"""Scenario files: which step answers, and what is said of a file that is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model.reply import (
    ApiError,
    Fault,
    Json,
    Request,
    Script,
    Streamed,
    text,
    thinking,
    tool_use,
)
from session_worker.demo_model.scenario import HTML, ScenarioError, load_scenario

Load = Callable[[list[Json]], Script]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(steps: list[Json]) -> Script:
        path = tmp_path / "scenario.json"
        path.write_text(json.dumps({"v": 1, "name": "test", "steps": steps}))
        return load_scenario(path)

    return load


def prompt(words: str) -> list[Json]:
    return [{"role": "user", "content": words}]


def after(tool: str, output: str = "", *, is_error: bool = False) -> list[Json]:
    use = {**tool_use(tool, {}), "id": "toolu_1"}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": output}
    return [
        *prompt("create hello.py"),
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{**result, "is_error": is_error}]},
    ]


def answer(script: Script, messages: list[Json], attempt: int = 1) -> Any:
    return script(Request({"messages": messages}, attempt))


def test_the_example_of_the_reference_plays_from_prompt_to_answer(load: Load) -> None:
    write = {"name": "write_file", "input": {"path": "hello.py", "content": "print('Hi')\n"}}
    run = {"name": "bash", "input": {"command": "python3 hello.py"}}
    script = load(
        [
            {
                "match": {"last_user": "(?i)Create hello.py"},
                "reply": [{"text": "I will create and run it."}, {"tool_use": write}],
                "tps": 60,
            },
            {
                "match": {"last_tool": "write_file", "is_error": False},
                "reply": [{"tool_use": run}],
            },
            {
                "match": {"last_tool": "bash"},
                "reply": [{"text": "Done. Output: {{tool_result|first_line}}"}],
                "stop_reason": "end_turn",
            },
        ]
    )
    first = answer(script, prompt("create hello.py"))
    assert first.tps == 60
    assert first.content == [text("I will create and run it."), {"type": "tool_use", **write}]
    assert answer(script, after("write_file")).content == [{"type": "tool_use", **run}]
    assert answer(script, after("write_file", is_error=True)) is None
    final = answer(script, after("bash", "Hello\nWorld"))
    assert (final.content, final.stop_reason) == ([text("Done. Output: Hello")], "end_turn")


def test_templates_reach_every_string_of_a_reply(load: Load) -> None:
    call = {"tool_use": {"name": "x", "input": {"a": ["{{tool_result}}", 1], "b": "{{other}}"}}}
    content = answer(load([{"reply": [call]}]), after("t", "1\n2")).content
    assert content == [tool_use("x", {"a": ["1\n2", 1], "b": "{{other}}"})]


def test_a_step_can_be_for_one_attempt_only(load: Load) -> None:
    script = load([{"match": {"attempt": 1}, "fault": "cut"}, {"reply": [{"text": "whole"}]}])
    assert answer(script, prompt("x")).fault == Fault("cut")
    assert answer(script, prompt("x"), attempt=2).fault is None


def test_blocks_may_be_named_verbatim_or_streamed_exactly(load: Load) -> None:
    verbatim = {"type": "brand_new", "x": 1}
    reply = [{"thinking": "hm"}, verbatim, {"start": verbatim, "deltas": [{"type": "d"}]}]
    assert answer(load([{"reply": reply}]), prompt("x")).content == [
        thinking("hm"),
        verbatim,
        Streamed(verbatim, [{"type": "d"}]),
    ]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"kind": "eof", "after": 3}, Fault("eof", 3)),
        ("half_event", Fault("half_event")),
    ],
)
def test_a_fault_goes_with_its_reply(load: Load, fault: Any, expected: Fault) -> None:
    assert answer(load([{"fault": fault}]), prompt("x")).fault == expected


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("html", HTML),
        (
            {"status": 429, "headers": {"retry-after": "1"}},
            ApiError(429, headers={"retry-after": "1"}),
        ),
        ({"status": 413, "body": "<h1>No"}, ApiError(413, body="<h1>No")),
    ],
)
def test_a_fault_may_replace_the_stream(load: Load, fault: Any, expected: ApiError) -> None:
    assert answer(load([{"fault": fault}]), prompt("x")) == expected


@pytest.mark.parametrize(
    ("steps", "place"),
    [
        ([{"mach": {}}], "steps.0.mach"),
        ([{}, {"reply": [{"txt": "x"}]}], "steps.1.reply.0"),
        ([{"fault": "earthquake"}], "steps.0.fault"),
        ([{"match": {"last_user": "("}}], "steps.0.match.last_user"),
        ([{"chunk_bytes": 0}], "steps.0.chunk_bytes"),
    ],
)
def test_a_bad_step_is_named(load: Load, steps: list[Json], place: str) -> None:
    with pytest.raises(ScenarioError, match=place):
        load(steps)


def test_a_file_that_is_no_scenario_is_a_scenario_error(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError):
        load_scenario(tmp_path / "missing.json")
    bad = tmp_path / "bad.json"
    bad.write_bytes(b'{"v": 2, "steps": [')
    with pytest.raises(ScenarioError):
        load_scenario(bad)
