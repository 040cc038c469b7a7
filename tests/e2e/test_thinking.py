"""Thinking goes back to the model as it came: the server checks each signature against all that
was said before it, so a history that is not append-only is refused."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model import ApiError, Fault, Reply, Streamed, text, thinking
from tests.support.daemon import Daemon
from tests.support.scripted import Scripted, bash, scripted_session

ADAPTIVE = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("model", "wanted"),
    [("claude-opus-5-5", ADAPTIVE), ("claude-haiku-4-5", None), ("somebody-elses", None)],
)
def test_thinking_is_asked_for_of_models_that_are_known_to_adapt_it(
    daemon: Daemon, work: Path, model: str, wanted: Any
) -> None:
    with scripted_session(daemon, work, model=model) as scripted:
        scripted.completes()
        assert scripted.bodies[0].get("thinking") == wanted
        assert scripted.bodies[0]["model"] == model


def test_thinking_is_streamed_apart_from_text_under_its_messages_id(scripted: Scripted) -> None:
    thought, said = "A thought that is longer than one delta", "And a sentence that is, too"
    run = scripted.prompt(Reply([thinking(thought), text(said)]))
    chunks = [u for u in scripted.events("update", run["run_id"]) if "messageId" in u]
    by_kind = {
        kind: [u for u in chunks if u["sessionUpdate"] == kind]
        for kind in ("agent_thought_chunk", "agent_message_chunk")
    }
    shown = ["".join(u["content"]["text"] for u in updates) for updates in by_kind.values()]
    assert shown == [thought, said]
    assert len({u["messageId"] for updates in by_kind.values() for u in updates}) == 1
    assert run["result"]["final_text"] == said


def test_signatures_come_back_untouched_through_turns_prompts_retries_and_restarts(
    scripted: Scripted,
) -> None:
    omitted = Streamed(
        {"type": "thinking", "thinking": "", "signature": ""},
        [{"type": "signature_delta", "signature": "someones.seal"}],
    )
    redacted = {"type": "redacted_thinking", "data": "opaque"}
    scripted.completes(
        Reply([thinking("One"), text("a"), thinking("Two"), bash("true")]),
        Reply([omitted, redacted, bash("true"), bash("exit 1")]),
        Reply([thinking("Lost"), text("half")], fault=Fault("eof")),
        Reply([thinking("Three"), bash("true")]),
    )
    scripted.completes(ApiError(529, "busy"), Reply([thinking("Four"), bash("true")]))
    scripted.crash()
    scripted.prompt(Reply([thinking("Five"), text("b")], stop_reason="refusal"))
    scripted.completes(Reply([thinking("Six"), bash("true")]))
    for before, after in pairwise(map(said, scripted.bodies)):
        assert after[: len(before)] == before, "nothing that was sent is ever changed"
    thoughts = [b.get("thinking") for b in said(scripted.bodies[-1]) if "thinking" in b["type"]]
    assert thoughts == ["One", "Two", "", None, "Three", "Four", "Six"]
    assert "someones.seal" in json.dumps(scripted.sent)


def said(body: dict[str, Any]) -> list[dict[str, Any]]:
    """All blocks, without the marks for the cache."""
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [{k: v for k, v in block.items() if k != "cache_control"} for block in blocks]
