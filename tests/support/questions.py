"""What a session asks people, as a client of its endpoint sees and answers it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from session_worker.demo_model import Answer, tool_use
from sidecar.protocol.trust import TrustStore
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint
from tests.support.processes import eventually
from tests.support.scripted import Scripted, scripted_session

Json = dict[str, Any]
Ask = Callable[..., Scripted]


@contextmanager
def asking(daemon: Daemon, work: Path) -> Generator[Ask]:
    """Makes sessions of mode `ask` in `work`, or as it is told."""
    with ExitStack() as stack:

        def create(cwd: Path = work, **params: Any) -> Scripted:
            params = {"mode": "ask"} | params
            return stack.enter_context(scripted_session(daemon, cwd, **params))

        yield create


def read(path: Path | str) -> Json:
    return tool_use("read_file", {"path": str(path)})


def write(path: Path | str, content: str = "x\n") -> Json:
    return tool_use("write_file", {"path": str(path), "content": content})


def edit(path: Path | str, old: str, new: str) -> Json:
    edits = [{"old_string": old, "new_string": new}]
    return tool_use("edit_file", {"path": str(path), "edits": edits})


def pending(endpoint: Endpoint) -> list[Json]:
    status, body = endpoint.get(f"/sessions/{endpoint.session_id}/permissions")
    assert status == 200, body
    return body["pending"]


def asked(endpoint: Endpoint, count: int = 1) -> list[Json]:
    """The questions that wait, once there are so many; the oldest first."""

    def look() -> list[Json] | None:
        questions = pending(endpoint)
        return questions if len(questions) == count else None

    return eventually(look, f"{count} questions")


def answer(endpoint: Endpoint, question: Json, option: str | None, reason: str = "") -> int:
    """The HTTP status."""
    path = f"/sessions/{endpoint.session_id}/permissions/{question['request_id']}"
    return endpoint.post(path, {"option_id": option, "reason": reason})[0]


def answered(
    scripted: Scripted, option: str | None, *answers: Answer, reason: str = ""
) -> tuple[Json, Json]:
    """The one question of a run, answered so, and the run at its end."""
    run_id = scripted.start(*answers)
    (question,) = asked(scripted.endpoint)
    assert answer(scripted.endpoint, question, option, reason) == 200
    return question, scripted.ended(run_id)


def results(scripted: Scripted) -> list[str]:
    """What the calls of the last turn came to, in the last request to the model."""
    return [text_of(b) for b in scripted.sent[-1]["content"] if b["type"] == "tool_result"]


def text_of(result: Json) -> str:
    content = result["content"]
    return content if isinstance(content, str) else "\n".join(b["text"] for b in content)


def notices(scripted: Scripted) -> list[str]:
    return [data["title"] for data in scripted.events("notice")]


def configure(project: Path, settings: str) -> None:
    """What the project says of permissions and hooks, in TOML."""
    (project / ".sidecar").mkdir(exist_ok=True)
    (project / ".sidecar/config.toml").write_text(settings)


@contextmanager
def trusted(daemon: Daemon, project: Path) -> Generator[None]:
    store = TrustStore(daemon.home / "state")
    store.trust(project)
    yield
    store.untrust(project)
