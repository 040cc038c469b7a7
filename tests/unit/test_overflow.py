"""What the results of one message may hold together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session_worker.tools import overflow
from session_worker.tools.overflow import Room
from session_worker.tools.spec import Shell, ToolContext, ToolResult


def test_images_and_documents_beyond_the_bound_are_left_for_another_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overflow, "MESSAGE_DATA_CHARS", 100)
    ctx = ToolContext("call", tmp_path, Shell(tmp_path), {}, tmp_path / "spill", lambda _: None)

    def shown(kind: str, chars: int) -> Any:
        source = {"type": "base64", "media_type": "image/png", "data": "x" * chars}
        [block] = room.fit(ToolResult([{"type": kind, "source": source}]), 1000, ctx).content
        return block["type"] if block["type"] != "text" else block["text"].partition(":")[0]

    room = Room()
    assert shown("document", 60) == "document"
    assert shown("image", 41) == "[image not shown"
    assert shown("image", 40) == "image"
    room = Room()
    assert shown("image", 100) == "image", "of the next message"
