"""Envelopes and runs as the Agent Communication Protocol shows them (acp.md §4, §6). Pure, but
that a run knows which question it was last shown with.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from session_worker.http.prompt_blocks import IMAGE_TYPES
from session_worker.permission_request import PermissionRequest
from session_worker.run import Run
from session_worker.turn import StopReason
from sidecar.protocol import events

AGENT_NAME = "sidecar"
Event = dict[str, Any]

MANIFEST: dict[str, Any] = {
    "name": AGENT_NAME,
    "description": "An agent that works in the session's directory with the session's tools",
    "input_content_types": ["text/plain", *sorted(IMAGE_TYPES)],
    "output_content_types": ["text/plain"],
    "metadata": {},
}

_TERMINAL = {StopReason.CANCELLED: "cancelled", StopReason.ERROR: "failed"}
_FORWARDED = frozenset(
    {events.PERMISSION_RESOLVED, events.NOTICE, events.TOOL_OUTPUT, events.API_CALL, events.RETRY}
)


def run_status(run: Run, question: PermissionRequest | None) -> str:
    if run.result is not None:
        return _TERMINAL.get(run.result.stop_reason, "completed")
    if run.cancel_asked:
        return "cancelling"
    if question is not None:
        return "awaiting"
    return "created" if run.started_at is None else "in-progress"


def run_object(run: Run, session_id: str, question: PermissionRequest | None) -> dict[str, Any]:
    """The Run of ACP-R; `result` is ours and holds the whole AgentLoopResult. `question` is what
    the run waits for, and from now on what an answer to the run answers."""
    run.shown_question = question and question.request_id
    error = run.result and run.result.error
    return {
        "run_id": run.run_id,
        "agent_name": AGENT_NAME,
        "session_id": session_id,
        "status": run_status(run, question),
        "await_request": question and _await_request(question),
        "output": [_message(text) for text in run.output],
        "error": error and {"code": "server_error", "message": error["message"]},
        "created_at": run.created_at,
        "finished_at": run.finished_at,
        "result": run.result and run.result.to_wire(),
    }


def _await_request(question: PermissionRequest) -> dict[str, Any]:
    """A message, as the SDK wants it: what for people, then the whole question. It is answered
    with the id or the kind of an option; a second part is the reason, which the model reads."""
    options = ", ".join(option["optionId"] for option in question.options)
    text = f"May this run? {question.tool_call['title']}\nAnswer with one of: {options}"
    whole = {"content_type": "application/json", "content": json.dumps(question.to_wire())}
    return {"type": "message", "message": _message(text, whole)}


class Translator:
    """Turns one run's envelopes, in order, into ACP-R events.

    A message is announced once per `messageId` and completed when another begins or the run
    ends. `finished` turns true with the terminal event, and when the run waits for an answer.
    """

    def __init__(
        self, run: Run, session_id: str, question: Callable[[], PermissionRequest | None]
    ) -> None:
        """`question` is what the run waits for at the time."""
        self._run = run
        self._session_id = session_id
        self._question = question
        self._message_id: str | None = None
        self._texts: list[str] = []
        self.finished = False

    def run_event(self, name: str) -> Event:
        run = run_object(self._run, self._session_id, self._question())
        return {"type": f"run.{name}", "run": run}

    def feed(self, envelope: dict[str, Any]) -> list[Event]:
        if envelope["run_id"] != self._run.run_id:
            return []
        kind, data = envelope["type"], envelope["data"]
        if kind == events.RUN_STARTED:
            return [self.run_event("in-progress")]
        if kind == events.RUN_FINISHED:
            return self.end()
        if kind == events.PERMISSION_REQUESTED:
            return self.waiting(envelope["seq"])
        if kind == events.RETRY and data["discard"]:
            self._message_id, self._texts = None, []  # never completed: it was not said
        if kind == events.UPDATE and data["sessionUpdate"] == "agent_message_chunk":
            return self._chunk(data["messageId"], data["content"].get("text", ""))
        if kind == events.UPDATE and data["sessionUpdate"] != "user_message_chunk":
            return [{"type": "generic", "generic": {"session_update": data}}]
        if kind in _FORWARDED:
            return [{"type": "generic", "generic": {kind: data}}]
        return []

    def waiting(self, seq: int) -> list[Event]:
        """The end for now, if the run still waits for an answer to what it asked by event `seq`."""
        question = self._question()
        if question is None or question.seq > seq:
            return []
        self.finished = True
        return [*self._complete(), self.run_event("awaiting")]

    def end(self) -> list[Event]:
        """The terminal event, after the message it closes; also when the ring lost the word."""
        self.finished = True
        return [*self._complete(), self.run_event(run_status(self._run, None))]

    def _chunk(self, message_id: str, text: str) -> list[Event]:
        out: list[Event] = []
        if message_id != self._message_id:
            out += self._complete()
            self._message_id = message_id
            out.append({"type": "message.created", "message": _message(None)})
        self._texts.append(text)
        return [*out, {"type": "message.part", "part": _part(text)}]

    def _complete(self) -> list[Event]:
        if self._message_id is None:
            return []
        text, self._texts, self._message_id = "".join(self._texts), [], None
        return [{"type": "message.completed", "message": _message(text)}]


def _message(text: str | None, *more: dict[str, Any]) -> dict[str, Any]:
    parts = [] if text is None else [_part(text), *more]
    return {"role": f"agent/{AGENT_NAME}", "parts": parts}


def _part(text: str) -> dict[str, Any]:
    return {"content_type": "text/plain", "content": text}
