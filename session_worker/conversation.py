"""The conversation: every message on record first, then in the history the model is sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from session_worker import compaction
from session_worker.blocks import Block, Message
from session_worker.history import History
from session_worker.recovery import Cure
from session_worker.transcript import Record, Transcript
from session_worker.turn import UNFINISHED, AgentTurn


class Conversation:
    """Append-only: thinking signatures and the prompt cache are bound to what was said before.

    Whatever happens to it is one record, applied in the same way when it is written and when a
    later worker reads it: so both send the same.
    """

    def __init__(
        self,
        transcript: Transcript,
        records: Iterable[Record],
        model: str,
        frame: object,
        *,
        api_blocks: bool,
    ) -> None:
        """Goes on from the transcript's `records`. `model` reads the messages behind `frame`, its
        system prompt and tools; `api_blocks` is whether it takes compactions of the API's own.
        Calls that were cut off at the end stay open: the next run answers them, on record and for
        everybody to see."""
        self._transcript = transcript
        self._model = model
        self._api_blocks = api_blocks
        self._history = History(model, frame)
        self._last: Record = {}
        self._run_ids: set[str | None] = set()
        self._repairs: set[str] = set()
        self.container: str | None = None
        """Of the provider's code execution: the newest it named."""
        self._container_ends: datetime | None = None
        changes = [change for record in records for change in self._apply(record)]
        if self.awaits_code() and self.container is None:
            changes += self._history.forget_code()  # the API would ask for the container for ever
        self._report(changes)

    # --- what is said ----------------------------------------------------------------------

    def add_prompt(self, content: list[Block], run_id: str) -> None:
        """Not synced again: the prompt became durable when it was accepted."""
        self._add({"role": "user", "content": content}, run_id, sync=False)

    def add_results(self, results: list[Block], cwd: str) -> None:
        """Durable on return: what a tool did is never forgotten, nor the directory it left.

        They are of the run that called, which may be over: as the first messages of the next one
        they would pass for its prompt."""
        message: Message = {"role": "user", "content": results}
        self._add(message, self._last["run_id"], sync=True, cwd=cwd)

    def add_answer(self, turn: AgentTurn, run_id: str) -> None:
        message: Message = {"role": "assistant", "content": turn.content}
        self._add(
            message,
            run_id,
            sync=False,
            model=self._model,
            seal=self._history.seal(message),
            stop_reason=turn.provider_stop_reason,
            container=turn.container,
        )

    def _add(self, message: Message, run_id: str, *, sync: bool, **more: Any) -> None:
        self._record("message", sync=sync, run_id=run_id, message=message, **more)

    # --- what is known of it ---------------------------------------------------------------

    @property
    def messages(self) -> Sequence[Message]:
        """As the API accepts them, once no call is open."""
        return self._history.messages

    def holds(self, run_id: str) -> bool:
        """Whether any message of that run is here, its prompt first of all."""
        return run_id in self._run_ids

    def open_calls(self) -> list[Block]:
        """The tool calls of the last answer; they wait for their results."""
        return self._history.open_calls()

    def answer(self) -> AgentTurn | None:
        """The last word, if it is the model's, and neither asks for anything nor pauses."""
        message, stop_reason = self._last.get("message", {}), self._last.get("stop_reason")
        if message.get("role") != "assistant" or stop_reason in UNFINISHED or self.open_calls():
            return None
        return AgentTurn.from_response({**message, "stop_reason": stop_reason})

    def awaits_code(self) -> bool:
        """Whether the provider's code waits for results: nothing else may be said, and its
        container must be named."""
        return self._history.awaits_code()

    def kept_out(self) -> int:
        """About how many tokens of what was said last go to code, and not into the context."""
        return sum(compaction.estimate(block["content"]) for block in self._history.for_code())

    def server_calls(self) -> set[str]:
        """The ids of what the provider runs itself and has not ended yet."""
        return self._history.server_calls()

    def container_is_over(self, now: datetime) -> bool:
        """Whether the container's time has run out, as far as the provider said. While code waits
        in there nobody but the provider can say so."""
        ends = self._container_ends
        return ends is not None and ends <= now and not self.awaits_code()

    # --- remedies --------------------------------------------------------------------------

    def cure(self, what: Cure, paths: Sequence[str], run_id: str) -> None:
        """What is done about a request that the API refused in known words."""
        self._record("repair", run_id=run_id, cure=what, paths=list(paths))

    def drop_container(self, run_id: str) -> None:
        """The provider's container is gone; the model is told, since what it kept there is, too.

        Also after an answer that was paused: without its code there is nothing to go on with.
        """
        self._record("repair", run_id=run_id, cure="container")
        note = "[The code execution container has expired; its files and variables are lost.]"
        self.add_prompt([{"type": "text", "text": note}], run_id)

    def compact(self, fields: dict[str, Any], run_id: str) -> None:
        """Put a summary in the place of what it stands for; `fields` are `compaction.note`'s."""
        self._record("note", sync=True, run_id=run_id, **fields)

    # --- one way for what is written and what is read --------------------------------------

    def _record(self, kind: Any, *, sync: bool = False, **fields: Any) -> None:
        n = self._transcript.append(kind, sync=sync, **fields)
        self._report(self._apply({"kind": kind, "n": n, **fields}))

    def _report(self, changes: list[str]) -> None:
        """Write down what had to be changed, once."""
        if new := [change for change in changes if change not in self._repairs]:
            self._repairs |= set(new)
            self._transcript.append("repair", changes=new)

    def _apply(self, record: Record) -> list[str]:
        """What had to be changed of it or because of it."""
        match record:
            case {"kind": "message"}:
                self._last = record
                self._run_ids.add(record["run_id"])
                if container := record.get("container"):
                    self.container = container["id"]
                    self._container_ends = _time(container.get("expires_at"))
                return self._history.add(record["message"], record.get("model"), record.get("seal"))
            case {"kind": "repair", "cure": what}:
                return self._apply_cure(what, record.get("paths", ()))
            case {"kind": "repair", "changes": changes}:
                self._repairs |= set(changes)
            case {"kind": "note", "note": compaction.COMPACTED}:
                return compaction.apply(self._history, record, api_blocks=self._api_blocks)
            case _:
                pass
        return []

    def _apply_cure(self, what: str, paths: Sequence[str]) -> list[str]:
        match what:
            case "thinking":
                return self._history.strip_thinking()
            case "images":
                return self._history.drop_images(paths)
            case "container":
                self.container = self._container_ends = None
                return self._history.forget_code()
            case _:  # pairing and text are put right as they are added: only server tools remain
                return self._history.forget_code()


def _time(given: Any) -> datetime | None:
    """Of a provider; one that cannot be read is as good as none."""
    try:
        time = datetime.fromisoformat(given)
    except (TypeError, ValueError):
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
