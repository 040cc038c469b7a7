"""A session whose model answers what the test says next, for tests of many prompts in a row."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from session_worker.demo_model import Answer, Reply, Script, text, tool_use
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint, run_request
from tests.support.model_server import ModelServer, model_server
from tests.support.processes import eventually

Json = dict[str, Any]
FINE = Reply([text("fine")])


def bash(command: str) -> Json:
    return tool_use("bash", {"command": command})


@dataclass
class Scripted:
    """The rules of the API hold: a run that completes has sent no illegal history."""

    daemon: Daemon
    endpoint: Endpoint
    model: ModelServer
    answers: deque[Answer]

    def start(self, *answers: Answer, prompt: str = "go", steer: bool = False) -> str:
        """The id of a run for which the model will answer so."""
        self.answers.extend(answers)
        status, run = self.endpoint.post("/runs", run_request(prompt, "async") | {"steer": steer})
        assert status == 202, run
        return run["run_id"]

    def prompt(self, *answers: Answer, prompt: str = "go") -> Json:
        """The run at its end; the model has given all answers."""
        run = self.ended(self.start(*answers, prompt=prompt))
        assert not self.answers, f"not asked for: {self.answers}"
        return run

    def completes(self, *answers: Answer) -> None:
        """A prompt is answered, whatever has happened before."""
        assert self.prompt(*answers, FINE)["result"]["final_text"] == "fine"

    def run(self, run_id: str) -> Json:
        return self.endpoint.get(f"/runs/{run_id}")[1]

    def ended(self, run_id: str) -> Json:
        def look() -> Json | None:
            run = self.run(run_id)
            return run if run.get("finished_at") else None

        return eventually(look, "the run has ended")

    def cancel(self, run_id: str) -> Json:
        """The run, cancelled."""
        assert self.endpoint.post(f"/runs/{run_id}/cancel")[0] == 202
        run = self.ended(run_id)
        assert run["status"] == "cancelled", run
        return run

    def crash(self) -> None:
        """SIGKILL to the worker; another one takes over."""
        pid = self.endpoint.get("/healthz")[1]["pid"]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: self.endpoint.get("/healthz")[1]["pid"] != pid, "another worker")

    @property
    def bodies(self) -> list[Json]:
        """What the model was asked, oldest first."""
        return [received.body for received in self.model.requests]

    @property
    def sent(self) -> list[Json]:
        """The messages of the last request."""
        return self.bodies[-1]["messages"]

    def was_asked(self, times: int) -> None:
        """Wait until the model was, in all."""
        eventually(lambda: len(self.model.requests) >= times, f"{times} requests")

    def events(self, kind: str, run_id: str | None = None) -> list[Json]:
        """The data of the events of this type, of all runs or of one."""
        of_kind = [e for e in self.endpoint.events() if e["type"] == kind]
        return [e["data"] for e in of_kind if run_id in (None, e["run_id"])]


@contextmanager
def scripted_session(
    daemon: Daemon, work: Path, script: Script | None = None, **params: Any
) -> Iterator[Scripted]:
    """A `script` decides by the request, where the order of the requests is not certain."""
    answers: deque[Answer] = deque()
    in_order = model_server(lambda _: answers.popleft() if answers else None)
    with model_server(script) if script else in_order as model:
        env = {
            "ANTHROPIC_BASE_URL": model.base_url,
            "ANTHROPIC_API_KEY": "sk-test",
            "PATH": os.environ["PATH"],
        }
        endpoint = daemon.session(work, env=env, **params)
        yield Scripted(daemon, endpoint, model, answers)
