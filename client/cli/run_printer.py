"""Shows a run to a person as it happens: the agent's words on stdout, its doings on stderr.

An answer may break off and be asked for again. What a person has seen of it cannot be unsaid, but
the line about the retry says that it does not count. Whoever reads a pipe may not see that line, so
there the words come once their answer is known to stand: nothing is said twice.
"""

from __future__ import annotations

from typing import Any, Literal

from client.cli.output import BOLD, DIM, RED, YELLOW, Output
from client.cli.question import visible
from sidecar.protocol.events import Envelope

_RESULT_LINES = 20
"""Of one tool result; the whole is in the transcript."""
_TAIL_CHARS = 200
"""Of live tool output, by which the part of the result that was not seen yet is found."""
_PAUSE_SHOWN_S = 0.05
"""A shorter one would round to none."""
_ANSWERS = {
    "allow_once": "allowed once",
    "allow_session": "allowed for the session",
    "allow_project": "allowed for the project",
    "reject_once": "rejected",
    "reject_always": "rejected for the session",
    "cancelled": "not answered",
    "unattended": "needed, and nobody was there",
    "expired": "not answered in time",
}
"""Of a permission, by the option or else the outcome."""
_MAY_BE_ASKED_AGAIN = "max_tokens"
"""`stop_reason` of a whole answer that the agent may still discard, to ask with more room."""


class RunPrinter:
    """Feed it the events of one run, in order. Tolerates events that were stored cut.

    `live` shows words before their answer stands.
    """

    def __init__(self, out: Output, *, live: bool) -> None:
        self._out = out
        self._live = live
        self._held: list[str] = []
        """Words of the answer under way that nobody has seen."""
        self._seen = False
        """Whether something of the answer under way has been shown."""
        self._open: Literal["stdout", "stderr"] | None = None
        self._names: dict[str, str] = {}
        self._tails: dict[str, str] = {}
        self._questions: dict[str, str] = {}
        """Their titles."""
        self._later: list[Envelope] | None = None
        """What came in a pause: little, as only calls that read run beside a question."""

    def pause(self) -> None:
        """Show nothing until `resume`: a question is on the screen. What ran beside it could push
        it away, or look like it."""
        self._close_line(None)
        self._later = []

    def resume(self) -> None:
        later, self._later = self._later or [], None
        for event in later:
            self.show(event)

    def show(self, event: Envelope) -> None:
        if self._later is not None:
            self._later.append(event)
            return
        data = event["data"]
        match event["type"]:
            case "update":
                self._update(data)
            case "api_call":
                self._called(data.get("stop_reason"))
            case "tool_output":
                text = data.get("text", "")
                call = data.get("tool_call_id", "")
                self._tails[call] = (self._tails.get(call, "") + text)[-_TAIL_CHARS:]
                self._aside(text, DIM)
            case "notice":
                self._line(f"{data.get('severity', 'notice')}: {data.get('title', '')}", YELLOW)
            case "retry":
                self._retry(data)
            case "restarted":
                self._line(f"the session's worker was restarted{self._void()}", YELLOW)
            case "gap":
                self._stand()
                self._line("some events were overwritten before they were read", YELLOW)
            case "permission_requested":
                asked: dict[str, Any] = data.get("toolCall") or {}
                self._questions[data.get("request_id", "")] = visible(asked.get("title", ""))
            case "permission_resolved":
                self._answered(data)
            case "run_finished":
                self._finished(data)
            case _:
                pass

    def _update(self, update: dict[str, Any]) -> None:
        match update.get("sessionUpdate"):
            case "agent_message_chunk" if self._live:
                self._seen = True
                self._words(_text(update))
            case "agent_message_chunk":
                self._held.append(_text(update))
            case "agent_thought_chunk":
                self._seen = True
                self._aside(_text(update), DIM)
            case "tool_call" if update.get("status") == "in_progress":
                # at the provider: a part of the answer, which may still break off
                self._seen = True
                self._names[update.get("toolCallId", "")] = _named(update)
                self._begun(update)
            case "tool_call":
                self._stand()
                self._names[update.get("toolCallId", "")] = _named(update)
            case "tool_call_update" if update.get("status") == "in_progress":
                self._begun(update)
            case "tool_call_update" if update.get("status") in ("completed", "failed"):
                self._result(update)
            case _:
                pass

    def _begun(self, update: dict[str, Any]) -> None:
        name = self._names.pop(update.get("toolCallId", ""), "• tool")
        self._line(f"{name}: {update.get('title', '')}", BOLD)

    def _called(self, stop_reason: str | None) -> None:
        """One answer is over: it stands, broke off, was refused, or its fate is still open."""
        if stop_reason in (None, "refusal"):
            self._held.clear()
        elif stop_reason != _MAY_BE_ASKED_AGAIN:
            self._stand()

    def _stand(self) -> None:
        self._words("".join(self._held))
        self._held.clear()
        self._seen = False

    def _void(self) -> str:
        """Forget the answer under way; what to tell those who have seen some of it."""
        seen, self._seen = self._seen, False
        self._held.clear()
        return "; the unfinished answer above does not count" if seen else ""

    def _retry(self, retry: dict[str, Any]) -> None:
        wait_s: float = retry.get("wait_s") or 0
        pause = f" in {wait_s:.1f} s" if wait_s >= _PAUSE_SHOWN_S else ""
        void = self._void() if retry.get("discard") else ""
        self._line(f"retrying ({retry.get('reason', 'unknown reason')}){pause}{void}", YELLOW)

    def _result(self, update: dict[str, Any]) -> None:
        if never_ran := self._names.pop(update.get("toolCallId", ""), ""):
            self._line(never_ran, BOLD)
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

    def _answered(self, answer: dict[str, Any]) -> None:
        option: str = answer.get("option_id") or answer.get("outcome") or "answered"
        title = self._questions.pop(answer.get("request_id", ""), "")
        reason = f" ({visible(answer['reason'])})" if answer.get("reason") else ""
        style = DIM if option.startswith("allow") else YELLOW
        self._line(f"permission {_ANSWERS.get(option, option)}: {title}{reason}", style)

    def _finished(self, result: dict[str, Any]) -> None:
        self._stand()
        if error := result.get("error"):
            self._line(f"{error.get('type')}: {error.get('message')}", RED)
        reason = result.get("stop_reason")
        counts = f"turns: {result.get('turns')}, tool calls: {result.get('tool_calls')}"
        self._line(f"{reason} ({counts})", DIM if reason == "final_answer" else YELLOW)

    def _words(self, text: str) -> None:
        if text:
            self._close_line("stdout")
            self._out.data(text)
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


def _named(call: dict[str, Any]) -> str:
    """The tool's name; a call that code made stands below that code's."""
    meta: dict[str, Any] = call.get("_meta") or {}
    return f"{'  ↳' if 'sidecar/caller' in meta else '•'} {call.get('name', 'tool')}"


def _text(holder: dict[str, Any]) -> str:
    """The text of a chunk, or of an item of a tool call's content."""
    content: dict[str, Any] = holder.get("content") or {}
    return content.get("text") or ""
