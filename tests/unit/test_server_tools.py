"""What people are shown of tools that the provider runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_worker import updates
from session_worker.http.acp_c.translate import session_update
from sidecar.protocol import bounds, markdown, server_tools
from tests.support.acp_schema import check

Json = dict[str, Any]
CALLER = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
MEMBERS = (
    *("type", "content", "text", "url", "title", "error_code", "return_code", "stdout", "file_id"),
    *("tool_references", "tool_name", "code", "query", "input", "name"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(MEMBERS) | st.text(), inner),
    max_leaves=10,
)


def call(name: str, **given: Any) -> Json:
    return {"type": "server_tool_use", "id": "srvtoolu_1", "name": name, "input": given}


def result(kind: str, content: Any, **more: Any) -> Json:
    block = {"type": f"{kind}_tool_result", "tool_use_id": "srvtoolu_1", "content": content}
    return {**block, **more}


def ran(stdout: str = "", stderr: str = "", code: int = 0, **more: Any) -> Json:
    said = {"stdout": stdout, "stderr": stderr, "return_code": code}
    return {"type": "code_execution_result", **said, "content": [], **more}


@pytest.mark.parametrize(
    ("asked", "kind", "title"),
    [
        (call("code_execution", code="\n  x = 1  \n\nprint(x)"), "execute", "x = 1…"),
        (call("code_execution", code="print(1)\n"), "execute", "print(1)"),
        (call("code_execution"), "execute", "code_execution"),
        (call("bash_code_execution", command="ls -l"), "execute", "ls -l"),
        (
            call("text_editor_code_execution", command="view", path="/a.py"),
            "execute",
            "view /a.py",
        ),
        (call("web_search", query="sidecars"), "search", "sidecars"),
        (call("tool_search_tool_bm25", query="git"), "search", "git"),
        (call("tool_search_tool_regex", pattern="git.*"), "search", "git.*"),
        (call("web_fetch", url="https://a.example"), "fetch", "https://a.example"),
        (call("advisor", question="?"), "other", "advisor"),
        (call("code_execution", code="a\x1b[31m\x07b\u0000"), "execute", "ab\u2400"),
        (call("code_execution", code="x" * 999), "execute", "x" * bounds.TOOL_TITLE_CHARS),
    ],
)
def test_a_call_is_shown_with_its_kind_and_the_first_line_of_what_it_is_about(
    asked: Json, kind: str, title: str
) -> None:
    shown = updates.server_call(asked)
    assert shown is not None
    assert (shown["kind"], shown["title"], shown["status"]) == (kind, title, "in_progress")
    assert shown["rawInput"] == asked["input"]
    assert "_meta" not in shown


@pytest.mark.parametrize(
    ("ended", "status", "text"),
    [
        (result("code_execution", ran("42\n")), "completed", "42"),
        (result("code_execution", ran()), "completed", "(no output)"),
        (
            result("code_execution", ran("a\n", "Traceback\n", 1)),
            "failed",
            "a\n[stderr]\nTraceback\n[exit 1]",
        ),
        (
            result("code_execution", ran("a", content=[{"type": "x", "file_id": "file_1"}])),
            "completed",
            "a\n[file file_1]",
        ),
        (
            result("code_execution", {"type": "e", "error_code": "unavailable"}),
            "failed",
            "error: unavailable",
        ),
        (
            result(
                "code_execution",
                {
                    "type": "encrypted_code_execution_result",
                    "encrypted_stdout": "c2VjcmV0",
                    "stderr": "",
                    "return_code": 0,
                },
            ),
            "completed",
            "[output is encrypted: only the model reads it]",
        ),
        (
            result("web_search", [{"type": "r", "url": "https://a", "title": "A"}, {"url": "b"}]),
            "completed",
            "A — https://a\nb",
        ),
        (
            result("web_search", {"type": "web_search_tool_result_error", "error_code": "x"}),
            "failed",
            "error: x",
        ),
        (
            result("web_fetch", {"type": "web_fetch_result", "url": "https://a", "content": {}}),
            "completed",
            "https://a",
        ),
        (
            result("tool_search", {"tool_references": [{"tool_name": "a"}, {"tool_name": "b"}]}),
            "completed",
            "a\nb",
        ),
        (result("text_editor_code_execution", {"content": "1 x"}), "completed", "1 x"),
        (result("mcp", [{"type": "text", "text": "hi"}], is_error=True), "failed", "hi"),
        (result("advisor", {"type": "advisor_result"}), "completed", "[advisor_result]"),
    ],
)
def test_a_result_is_shown_in_words(ended: Json, status: str, text: str) -> None:
    shown = updates.server_call_ended(ended)
    assert shown is not None
    assert (shown["toolCallId"], shown["status"]) == ("srvtoolu_1", status)
    assert shown["content"][0]["content"]["text"] == text
    assert text in markdown.render([{"kind": "message", "message": said("assistant", ended)}])


def test_clients_are_told_whose_code_made_a_call_and_what_stayed_out_of_the_context() -> None:
    asked: Json = {"id": "toolu_1", "name": "bash", "input": {}, "caller": CALLER | {"more": 1}}
    assert updates.tool_call(asked, "execute")["_meta"] == {"sidecar/caller": CALLER}
    search = updates.server_call(call("web_search", query="x") | {"caller": CALLER})
    assert search and search["_meta"] == {"sidecar/caller": CALLER}
    for caller in ({"type": "direct"}, None, "x", {"type": "code_execution_1", "tool_id": 1}):
        assert "_meta" not in updates.tool_call({**asked, "caller": caller}, "execute")
    done = updates.tool_call_ended("toolu_1", updates.ToolResult("ok"), 7)
    assert done["_meta"] == {"sidecar/kept_out": 7}


@given(JSON, JSON, JSON)
def test_no_block_of_a_provider_breaks_what_shows_it(one: Any, two: Any, three: Any) -> None:
    for block in ({"id": "a", "name": "b", "input": one}, {"id": one, "name": two}):
        check_update(updates.server_call(block))
    for block in ({"tool_use_id": "a", "content": one}, {"tool_use_id": one, "is_error": two}):
        check_update(updates.server_call_ended({**block, "caller": three}))
    named = {"type": "server_tool_use", "name": one, "input": two}
    ended = {"type": "x_tool_result", "content": three}
    assert markdown.render([{"kind": "message", "message": said("assistant", named, ended)}])
    assert isinstance(server_tools.title(named), str)


def check_update(update: Json | None) -> None:
    if update is not None:
        json.dumps(update)
        check(session_update("s", update))


def said(role: str, *blocks: Json) -> Json:
    return {"role": role, "content": list(blocks)}


def test_a_transcript_for_people_says_what_code_called_and_where_the_results_went() -> None:
    called = {"type": "tool_use", "id": "a", "name": "bash", "input": {"command": "ls"}}
    of_code = {**called, "id": "b", "caller": CALLER}
    results = [{"type": "tool_result", "tool_use_id": name, "content": "x"} for name in "ab"]
    code = call("code_execution", code="first\nsecond")
    records = [said("assistant", code, called, of_code), said("user", *results)]
    text = markdown.render({"kind": "message", "message": message} for message in records)
    assert "**code_execution** at the provider\n\n```\nfirst\nsecond\n```" in text
    assert text.count("(called by code)") == text.count("went to the code") == 1
