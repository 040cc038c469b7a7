"""Shows a run to a person as it happens: the agent's words on stdout, its doings on stderr."""

from __future__ import annotations

from typing import Any, Literal

from client.cli.output import BOLD, DIM, RED, YELLOW, Output
from sidecar.protocol.events import Envelope

_RESULT_LINES = 20
"""Of one tool result; the whole is in the transcript."""
_TAIL_CHARS = 200
"""Of live tool output, by which the part of the result that was not seen yet is found."""


class RunPrinter:
    """Feed it the events of one run, in order. Tolerates events that were stored cut."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._open: Literal["stdout", "stderr"] | None = None
        self._names: dict[str, str] = {}
        self._tails: dict[str, str] = {}

    def show(self, event: Envelope) -> None:
        data = event["data"]
        match event["type"]:
            case "update":
                self._update(data)
            case "tool_output":
                text = data.get("text", "")
                call = data.get("tool_call_id", "")
                self._tails[call] = (self._tails.get(call, "") + text)[-_TAIL_CHARS:]
                self._aside(text, DIM)
            case "notice":
                self._line(f"{data.get('severity', 'notice')}: {data.get('title', '')}", YELLOW)
            case "retry":
                self._line(f"retry {data.get('attempt', '')}: {data.get('reason', '')}", YELLOW)
            case "restarted":
                self._line("the session's worker was restarted", YELLOW)
            case "gap":
                self._line("some events were overwritten before they were read", YELLOW)
            case "run_finished":
                self._finished(data)
            case _:
                pass

    def _update(self, update: dict[str, Any]) -> None:
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                self._words(_text(update))
            case "agent_thought_chunk":
                self._aside(_text(update), DIM)
            case "tool_call":
                self._names[update.get("toolCallId", "")] = update.get("name", "tool")
            case "tool_call_update" if update.get("status") == "in_progress":
                name = self._names.pop(update.get("toolCallId", ""), "tool")
                self._line(f"• {name}: {update.get('title', '')}", BOLD)
            case "tool_call_update" if update.get("status") in ("completed", "failed"):
                self._result(update)
            case _:
                pass

    def _result(self, update: dict[str, Any]) -> None:
        if never_ran := self._names.pop(update.get("toolCallId", ""), ""):
            self._line(f"• {never_ran}", BOLD)
        content: list[dict[str, Any]] = update.get("content") or []
        text = "\n".join(map(_text, content))
        if tail := self._tails.pop(update.get("toolCallId", ""), "").rstrip():
            text = text.rpartition(tail)[2]
        lines = text.strip("\n").split("\n")
        if len(lines) > _RESULT_LINES:
            lines[_RESULT_LINES:] = [f"… {len(lines) - _RESULT_LINES} more lines"]
        failed = update["status"] == "failed"
        if shown := "\n".join(lines):
            self._line(shown, RED if failed else DIM)

    def _finished(self, result: dict[str, Any]) -> None:
        if error := result.get("error"):
            self._line(f"{error.get('type')}: {error.get('message')}", RED)
        reason = result.get("stop_reason")
        counts = f"turns: {result.get('turns')}, tool calls: {result.get('tool_calls')}"
        self._line(f"{reason} ({counts})", DIM if reason == "final_answer" else YELLOW)

    def _words(self, text: str) -> None:
        self._close_line("stdout")
        self._out.data(text)
        if text:
            self._open = None if text.endswith("\n") else "stdout"

    def _aside(self, text: str, style: str) -> None:
        self._close_line("stderr")
        self._out.aside(text, style)
        if text:
            self._open = None if text.endswith("\n") else "stderr"

    def _line(self, text: str, style: str) -> None:
        self._close_line(None)
        self._out.note(text, style)

    def _close_line(self, unless: str | None) -> None:
        """End the line that is open, unless its own stream is about to go on with it."""
        if self._open == unless:
            return
        if self._open == "stdout":
            self._out.data("\n")
        elif self._open == "stderr":
            self._out.aside("\n")
        self._open = None


def _text(holder: dict[str, Any]) -> str:
    """The text of a chunk, or of an item of a tool call's content."""
    content: dict[str, Any] = holder.get("content") or {}
    return content.get("text") or ""
