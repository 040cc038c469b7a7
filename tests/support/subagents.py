"""A session with its subagents, whose models answer what the test says."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from session_worker.demo_model import Answer, Reply, Request, tool_use
from session_worker.prompt import SUBAGENT
from tests.support.daemon import Daemon
from tests.support.processes import eventually
from tests.support.scripted import Scripted, bash, scripted_session

Json = dict[str, Any]
HELD = Reply([bash("touch begun; until [ -e go ]; do sleep 0.02; done")])
"""A subagent that works until the test lets it go."""


def task(prompt: str = "look", description: str = "look around") -> Json:
    return tool_use("task", {"prompt": prompt, "description": description})


@dataclass
class Family:
    """`parent` also has the answers of its own model; `child_answers` are for all subagents."""

    parent: Scripted
    child_answers: deque[Answer]

    def children(self) -> list[Json]:
        """SessionInfo of each it ever had, newest first."""
        own = self.parent.endpoint.session_id
        found = self.parent.daemon.call("session.list", all=True)["sessions"]
        return [info for info in found if info["parent"] == own]

    def child(self) -> Json:
        """The one there is, once it is up."""
        return eventually(lambda: [c for c in self.children() if c["pid"]], "a live subagent")[0]

    def holding(self, work: Path, *then: Answer, count: int = 1) -> tuple[str, Json]:
        """The parent's run and its subagent, which has begun a command that waits."""
        self.child_answers.extend([HELD] * count)
        run_id = self.parent.start(Reply([task()]), *then)
        eventually((work / "begun").exists, "the subagent works")
        return run_id, self.child()

    def results(self) -> list[str]:
        """What the calls of the last turn of the parent came to."""
        mine = [body for body in self.parent.bodies if not is_subagent(body)]
        return [b["content"] for b in mine[-1]["messages"][-1]["content"] if "content" in b]

    def status(self) -> Json:
        return self.parent.daemon.call("session.status", session_id=self.parent.endpoint.session_id)


Make = Callable[..., Family]


def is_subagent(body: Json) -> bool:
    """Whose model call this is."""
    return SUBAGENT in json.dumps(body["system"], ensure_ascii=False).replace("\\n", "\n")


@contextmanager
def families(daemon: Daemon, work: Path) -> Generator[Make]:
    """Makes sessions whose subagents have a script of their own."""
    with ExitStack() as stack:

        def make(**params: Any) -> Family:
            answers: deque[Answer] = deque()
            child_answers: deque[Answer] = deque()

            def script(request: Request) -> Answer | None:
                waiting = child_answers if is_subagent(request.body) else answers
                return waiting.popleft() if waiting else None

            parent = stack.enter_context(scripted_session(daemon, work, script, **params))
            parent.answers = answers
            return Family(parent, child_answers)

        yield make
