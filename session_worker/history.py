"""The messages of a session as the Messages API accepts them, whatever was recorded.

A pure fold: the same calls on a `History` always leave the same messages, live and after a reload.
All repairs are made here, as a message is added, in these ways and no others:

- A block or a message of the wrong shape is left out (`blocks`), blank text too; neighbours of
  one role are merged. The first message is the user's.
- Every tool call has one result, first in the next user message, in call order. A call without
  one says so when the conversation goes on; a result without its call is left out; a call with
  an id that was used before gets a new one.
- A server tool call without its result is left out as soon as the user says something: until then
  its result may still open the next answer. If it was code, the calls it made become plain ones,
  because calls of code may be answered by results alone, and only in a container that still runs.

**Thinking** is signed together with all messages before it (anthropic.md §3.3), so it is left out
if they are not those it was made for. A message that is appended changes nothing before it, and
what is put right when a message is added was so the first time that message was sent: signatures
made later are good for that form, blank text that the model itself sent included. Only these can
be bad, and are left out:

- thinking behind a block that is edited after it was sent, at the edit;
- thinking on record, if anything before it was lost or damaged since. That cannot be seen for
  sure, so an answer is recorded with a `seal` over all that had happened to the history until
  then. Without a seal, thinking behind visible damage is taken to be bad.

Thinking of another model goes too, and thinking at the very end of an answer. The end of
`messages` may be an answer that was paused and that the API wants back unchanged, so blanks at its
end stay.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from typing import Any, cast

from session_worker import images
from session_worker.blocks import (
    SERVER_CALLS,
    THINKING,
    Block,
    Message,
    Report,
    calling_code,
    clean,
    is_server_result,
    text_only,
    tool_result,
    without_caller,
    without_last_thoughts,
)
from session_worker.messages import Messages

INTERRUPTED = "interrupted, outcome unknown"
ROLES = ("user", "assistant", "system")
SEAL_CHARS = 16
"""64 bits: what breaks seals is chance, not an enemy."""


class History:
    """What the model is sent, taken one message at a time as it was said."""

    def __init__(self, model: str, frame: object = None) -> None:
        """`model` will read the messages, behind `frame`: its system prompt and its tools."""
        self._model = model
        self._sent = Messages()
        self._log = hashlib.sha256()
        self._happened([model, frame])
        self._ids: set[str] = set()
        self._renamed: dict[str, str] = {}
        self._pending: set[str] = set()
        self._damaged = False

    @property
    def messages(self) -> list[Message]:
        """Ready to send when there are no `open_calls`. Elements are replaced, never changed, and
        one more message leaves all but the last as they are, unless `add` says otherwise."""
        return self._sent.items

    def seal(self, message: Message) -> str:
        """Of an answer about to be added: to be recorded with it, and given to `add` ever after."""
        log = self._log.copy()
        log.update(_line(message))
        return log.hexdigest()[:SEAL_CHARS]

    def add(
        self, message: Any, written_by: str | None = None, seal: str | None = None
    ) -> list[str]:
        """Take what was said next, and answer what had to be changed, for the `repair` record.

        `written_by` is the model that was asked; unknown, it was this one. Never raises.
        """
        self._happened(message)
        unbroken = self._log.hexdigest()[:SEAL_CHARS] == seal
        said = cast("Message", message) if isinstance(message, dict) else {}
        role = said.get("role")
        report = Report()
        if role not in ROLES:
            report.repaired("a message of no known role left out")
        elif not (blocks := clean(role, said.get("content"), report)):
            report.tidied("a message without content left out")
        elif role == "assistant":
            kept = self._paired(blocks, report)
            why = self._why_no_thinking(written_by, seal, unbroken, report)
            self._happened(why)
            kept = _without_thinking(kept, why, report) if why else kept
            self._sent.append("assistant", _without_last_thoughts(kept, report))
        else:
            self._say(role, blocks, report)
        self._damaged |= report.damaged
        return report.changes

    def open_calls(self) -> list[Block]:
        """The tool calls of the last answer that have no result yet, with the ids to answer to."""
        calls, said = self._sent.exchange()
        answered = {b["tool_use_id"] for b in said if b["type"] == "tool_result"}
        return [call for call in calls if call["id"] not in answered]

    def awaits_code(self) -> bool:
        """Whether code at the API waits for the results said last. The request must then name
        its container; `forget_code` is the way on when that is gone."""
        return bool(self.for_code())

    def for_code(self) -> list[Block]:
        """The results said last that go to code, and not into the model's context."""
        calls, said = self._sent.exchange()
        from_code = {call["id"] for call in calls if calling_code(call)}
        return [block for block in said if block.get("tool_use_id") in from_code]

    def server_calls(self) -> set[str]:
        """The calls of server tools that have no result yet."""
        return set(self._pending)

    def close(self, why: str = INTERRUPTED) -> list[str]:
        """Answer every open call with `why`, as an error."""
        return self._remedy("close", lambda report: self._close(why, report))

    def forget_code(self) -> list[str]:
        """Give up the server tools that wait: the remedy for a container that is gone."""
        return self._remedy("forget_code", self._abandon)

    def strip_thinking(self) -> list[str]:
        """Leave all thinking out: the remedy for a 400 about a signature."""

        def strip(report: Report) -> None:
            if self._sent.rewrite(lambda block: None if block["type"] in THINKING else block):
                report.repaired("all thinking left out")

        return self._remedy("strip_thinking", strip)

    def drop_images(self, paths: Collection[str] = ()) -> list[str]:
        """Put a note in the place of images: the remedy for a 400 about them.

        `paths` are those of the error, like `messages.3.content.1` or longer; the images they
        lead to go. If they lead to none, all images go: a second 400 would be final.
        """
        named = self._sent.images_at(paths)

        def is_bad(image: Block) -> bool:
            return not named or any(image is one for one in named)

        def drop(report: Report) -> None:
            def without(block: Block) -> Block:
                return images.without(block, is_bad, "the API refused it")

            if self._sent.rewrite(without):
                report.repaired("images replaced by notes: the API refused them")

        return self._remedy(["drop_images", sorted(paths)], drop)

    def is_border(self, index: int) -> bool:
        """Whether the messages before that one can be replaced by a summary."""
        return 0 < index <= len(self.messages) and self._sent.is_border(index)

    def compacted(self, summary: Message, keep_from: int) -> list[str]:
        """Put a message of the user in the place of all before `keep_from`, an `is_border`."""
        if not self.is_border(keep_from):
            raise ValueError(f"message {keep_from} belongs together with those before it")

        def compact(report: Report) -> None:
            said = clean("user", summary["content"], report)
            self._sent.restart(said or [images.note("the summary is lost")], keep_from)
            report.repaired(f"{keep_from} messages replaced by a summary")

        return self._remedy(["compacted", summary, keep_from], compact)

    def _happened(self, what: object) -> None:
        self._log.update(_line(what))

    def _remedy(self, name: object, remedy: Callable[[Report], None]) -> list[str]:
        report = Report()
        remedy(report)
        if report.changes:
            self._happened(name)
        return report.changes

    def _why_no_thinking(
        self, written_by: str | None, seal: str | None, unbroken: bool, report: Report
    ) -> str | None:
        if written_by not in (None, self._model):
            return f"another model's, {written_by}"
        damaged = self._damaged or report.damaged if seal is None else not unbroken
        return "the messages before it are not those it was made for" if damaged else None

    def _paired(self, blocks: list[Block], report: Report) -> list[Block]:
        """The blocks of an answer, its calls with ids of their own, without those that are the
        second half of something that has no first. What came before is complete then."""
        if not self.messages:
            self._lost_start(report)
        self._close(INTERRUPTED, report)
        kept: list[Block] = []
        for block in blocks:
            if is_server_result(block):
                if block["tool_use_id"] not in self._pending:
                    report.repaired(f"{block['type']} without its call left out")
                    continue
                self._pending.remove(block["tool_use_id"])
            elif block["type"] in SERVER_CALLS:
                if block["id"] in self._ids:
                    report.repaired(f"second {block['type']} {block['id']} left out")
                    continue
                self._ids.add(block["id"])
                self._pending.add(block["id"])
            elif block["type"] == "tool_use":
                block = self._own_call(block, report)
            kept.append(block)
        return kept

    def _own_call(self, call: Block, report: Report) -> Block:
        code = calling_code(call)
        if code is not None and code not in self._pending:
            report.repaired(f"caller of tool call {call['id']} left out: no such code runs")
            call = without_caller(call)
        given = call["id"]
        number = 2
        while call["id"] in self._ids:
            call = {**call, "id": f"{given}-{number}"}
            number += 1
        self._ids.add(call["id"])
        if call["id"] != given:
            report.repaired(f"second tool call {given} is now {call['id']}")
            self._renamed[call["id"]] = given
        return call

    def _say(self, role: str, blocks: list[Block], report: Report) -> None:
        """Take a message of the user, or of the system between two others."""
        if role == "system":
            if not self.messages:
                self._lost_start(report)
            self._close(INTERRUPTED, report)
        if any(block["type"] != "tool_result" for block in blocks):
            self._abandon(report)
        blocks, too_large = self._sent.fit(blocks)
        if too_large:
            report.repaired("images left out that are too large among so many")
        if role == "system":
            self._sent.append(role, blocks)
            return
        calls, said = self._sent.exchange()
        results = {block["tool_use_id"]: block for block in said if block["type"] == "tool_result"}
        new: list[Block] = []
        for block in blocks:
            if block["type"] == "tool_result":
                if (call := self._call_of(block, calls, results)) is None:
                    report.repaired(f"result without an open call left out: {block['tool_use_id']}")
                    continue
                block = _addressed(block, call, report)
                results[call["id"]] = block
            new.append(block)
        content = [results[call["id"]] for call in calls if call["id"] in results]
        content += [block for block in (*said, *new) if block["type"] != "tool_result"]
        if not images.same(content, [*said, *new]):
            report.repaired("results put first, in the order of their calls")
        if new:
            self._sent.say(content, new)

    def _call_of(
        self, result: Block, calls: list[Block], answered: Collection[str]
    ) -> Block | None:
        """The open call a result belongs to, which may have been renamed since."""
        name: str = result["tool_use_id"]
        waiting = {call["id"]: call for call in calls if call["id"] not in answered}
        renamed = (call for call_id, call in waiting.items() if self._renamed.get(call_id) == name)
        return waiting.get(name) or next(renamed, None)

    def _lost_start(self, report: Report) -> None:
        report.repaired("the start is lost: said so in its place")
        self._sent.append("user", [images.note("the start of this conversation was lost")])

    def _close(self, why: str, report: Report) -> None:
        if waiting := self.open_calls():
            report.repaired(f"answered {len(waiting)} calls without a result: {why}")
            # nothing but results: this cannot come back here
            self._say("user", [tool_result(c["id"], why, is_error=True) for c in waiting], report)

    def _abandon(self, report: Report) -> None:
        """Leave out the server calls that wait, and let the calls of their code be plain ones."""
        calls, _ = self._sent.exchange()
        codes = self._pending | {code for call in calls if (code := calling_code(call))}

        def abandon(block: Block) -> Block | None:
            if block["type"] in SERVER_CALLS and block["id"] in self._pending:
                return None
            return without_caller(block) if calling_code(block) in codes else block

        if codes:
            self._sent.rewrite(abandon, self._sent.first_of(self._pending))
            report.repaired(
                f"given up what server tools have not ended: {', '.join(sorted(codes))}"
            )
            self._pending.clear()


def _without_thinking(blocks: list[Block], why: str, report: Report) -> list[Block]:
    kept = [block for block in blocks if block["type"] not in THINKING]
    if len(kept) < len(blocks):
        report.tidied(f"thinking left out: {why}")
    return kept


def _without_last_thoughts(blocks: list[Block], report: Report) -> list[Block]:
    kept = without_last_thoughts(blocks)
    if len(kept) < len(blocks):
        report.tidied("thinking at the end of an answer left out")
    return kept


def _addressed(result: Block, call: Block, report: Report) -> Block:
    """The result as its call takes it."""
    if result["tool_use_id"] != call["id"]:
        result = {**result, "tool_use_id": call["id"]}
    return text_only(result, call["id"], report) if calling_code(call) else result


def _line(what: object) -> bytes:
    return json.dumps(what, separators=(",", ":")).encode() + b"\n"
