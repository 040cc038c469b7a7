"""A run: from an accepted prompt to its result (design §1)."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Any

from session_worker.editor import Editor
from session_worker.result import AgentLoopResult, Usage
from sidecar.protocol.events import now_iso


@dataclass
class Run:
    """`output` collects the agent's texts, one a message. `done` is set with `result`."""

    prompt: str
    """Its text; what of it is none is in `content`."""
    first_seq: int
    """Events of this run have greater numbers."""
    steer: bool = False
    """Not to wait for the end of the run under way: it goes along with the next tool results."""
    content: list[dict[str, Any]] | None = None
    """The prompt as blocks of the Messages API, where it is more than text."""
    compact: str | None = None
    """No prompt but a wish to compact the conversation, with attention to this."""
    command: bool = False
    """A prompt that runs a skill, if there is one of that name."""
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created_at: str = field(default_factory=now_iso)
    started_at: str | None = None
    finished_at: str | None = None
    output: list[str] = field(default_factory=list[str])
    finished_seq: int | None = None
    result: AgentLoopResult | None = None
    cancel_asked: bool = False
    turns: int = 0
    tool_calls: int = 0
    """What an earlier worker had done of it; its `started_at` is set then, too. `turns` grows."""
    subagents: Usage = field(default_factory=Usage)
    """What its subagents have used in this worker."""
    host: Run | None = None
    """The run that a steering prompt went along with, and ends with."""
    shown_question: str | None = None
    """Id of the permission request that an ACP-R client was last shown: what its answer is for."""
    editor: Editor | None = None
    """The client whose prompt it is, if its tools may ask that one; of this worker only."""
    task: asyncio.Task[AgentLoopResult] | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)
