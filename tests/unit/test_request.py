"""Requests of one session: the same bytes up to what is new, and the breakpoints of the cache."""

from __future__ import annotations

import json
import re
from typing import Any

from session_worker.blocks import Message
from session_worker.demo_model.rules import check_request
from session_worker.request import RequestWriter, breakpoints
from sidecar.protocol.bounds import CACHE_LOOKBACK_BLOCKS

TOOLS = [{"name": "bash", "description": "…", "input_schema": {"type": "object"}}]
MARK = re.compile(rb',"cache_control":\{[^}]*\}')
HEADERS = {"x-api-key": "k", "anthropic-version": "1"}


def writer(*, cached: bool = True) -> RequestWriter:
    return RequestWriter("m", "Be brief.", TOOLS, cached=cached)


def user(*words: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": word} for word in words]}


def assistant(word: str) -> Message:
    return {"role": "assistant", "content": [{"type": "text", "text": word}]}


def plain(body: bytes) -> dict[str, Any]:
    """The body without its breakpoints."""
    return json.loads(
        body, object_hook=lambda block: {k: v for k, v in block.items() if k != "cache_control"}
    )


def test_a_request_says_what_it_was_given_and_the_api_takes_it() -> None:
    messages = [user("one"), assistant("two"), user("three")]
    body = writer().write(messages, 100, thinking={"type": "adaptive"}, container=None)
    assert plain(body) == {
        "model": "m",
        "max_tokens": 100,
        "stream": True,
        "thinking": {"type": "adaptive"},
        "tools": TOOLS,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": messages,
    }
    assert check_request(json.loads(body), HEADERS) is None


def test_every_request_begins_with_the_bytes_of_the_one_before_it() -> None:
    talk: list[Message] = []
    write, before = writer().write, b""
    for turn in range(20):
        talk.append(user(*(f"result {turn}.{n}" for n in range(turn + 1))))
        body = MARK.sub(b"", write(talk, 100))
        assert body.startswith(before)
        assert body == MARK.sub(b"", writer().write(talk, 100)), "as if written for the first time"
        before = body.removesuffix(b"]}")
        talk.append(assistant(f"answer {turn}"))


def test_only_the_newest_messages_differ_by_their_breakpoints() -> None:
    talk = [user("one"), assistant("two"), user("three"), assistant("four"), user("five")]
    write = writer().write
    earlier, later = write(talk[:3], 100), write(talk, 100)
    assert later.startswith(earlier[: earlier.index(b"one")])
    unmarked = b'{"role":"user","content":[{"type":"text","text":"one"}]}'
    assert unmarked in later
    assert unmarked not in earlier


def test_a_changed_message_is_written_anew_and_so_is_all_behind_it() -> None:
    write = writer().write
    talk = [user("one"), assistant("two"), user("three")]
    write(talk, 100)
    changed = [talk[0], assistant("2"), talk[2]]
    assert plain(write(changed, 100))["messages"] == changed
    shorter = [user("summary")]
    assert plain(write(shorter, 100))["messages"] == shorter


def test_the_breakpoints_are_on_the_last_two_messages_of_the_user() -> None:
    assert breakpoints([user("a")]) == {0: [0]}
    assert breakpoints([user("a", "b"), assistant("c"), user("d")]) == {0: [1], 2: [0]}
    talk = [user("a"), assistant("b"), user("c"), assistant("d"), user("e", "f")]
    assert breakpoints(talk) == {2: [0], 4: [1]}
    assert breakpoints([*talk, assistant("paused")]) == {2: [0], 4: [1]}


def test_a_turn_of_many_blocks_has_a_breakpoint_inside_it_and_never_more_than_four_in_all() -> None:
    talk = [user("a"), assistant("b"), user(*(f"result {n}" for n in range(40)))]
    assert breakpoints(talk) == {0: [0], 2: [CACHE_LOOKBACK_BLOCKS, 39]}
    body = writer().write(talk, 100)
    assert body.count(b'"cache_control"') == 4
    assert check_request(json.loads(body), HEADERS) is None


def test_an_endpoint_without_a_cache_gets_no_breakpoints() -> None:
    assert b"cache_control" not in writer(cached=False).write([user("a")], 100)


def test_text_that_is_no_unicode_still_makes_a_request() -> None:
    assert b"\\ud800" in writer().write([user("\ud800")], 100)
