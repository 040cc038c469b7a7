"""A scripted model server for tests that are not asynchronous, or drive other processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal

from session_worker.demo_model import Answer, DemoModel, Received, Script, queue_script
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint

REQUESTS_KEPT = 1000
"""More calls than any test makes."""


@dataclass(frozen=True)
class ModelServer:
    """Where the server is (for `ANTHROPIC_BASE_URL`) and what it was asked."""

    base_url: str
    model: DemoModel

    @property
    def requests(self) -> list[Received]:
        """Calls of the model, not those that only count tokens."""
        return [r for r in self.model.requests if r.path == "/v1/messages"]

    def session(self, daemon: Daemon, cwd: Path, **params: Any) -> Endpoint:
        """A session that talks to this server."""
        return daemon.session(cwd, env=self.env, **params)

    @property
    def env(self) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": self.base_url,
            "ANTHROPIC_API_KEY": "sk-test",
            "PATH": os.environ["PATH"],
        }

    @property
    def unexpected(self) -> list[Received]:
        return list(self.model.unexpected)


@contextmanager
def model_server(script: Script | Sequence[Answer]) -> Iterator[ModelServer]:
    """Serves on loopback from a thread of its own; answers are given in order.

    A call beyond them fails the test when the block ends.
    """
    chosen = script if callable(script) else queue_script(script)
    model = DemoModel(chosen, keep_requests=REQUESTS_KEPT)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(model.serve_tcp()) as base_url,
    ):
        yield ModelServer(base_url, model)
    asked = [received.body["messages"][-1] for received in model.unexpected]
    assert not asked, f"the model was called more often than scripted: {asked}"
