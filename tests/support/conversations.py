"""Conversations with the model server's own signatures, as a live session has them, and what can
happen to their record. All choices come from a tape of bytes, which hypothesis makes small.
"""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass, field, replace
from typing import Any, cast

from session_worker.blocks import tool_result
from session_worker.demo_model.conversation import segments, signature
from session_worker.demo_model.reply import ApiError
from session_worker.demo_model.rules import check_request
from session_worker.history import History

Block = dict[str, Any]
Message = dict[str, Any]

MODEL = "claude-sonnet-5-5"
SYSTEM = [{"type": "text", "text": "be brief"}]
TOOLS = [{"name": "bash", "input_schema": {"type": "object"}}]
FRAME = [SYSTEM, TOOLS]
HEADERS = {"x-api-key": "k", "anthropic-version": "2026-10-21"}
CODE = "code_execution_20260120"
TURNS = 3
PROMPTS = 4


class Tape:
    """Choices, one a byte; a tape that has run out always chooses the first."""

    def __init__(self, choices: bytes) -> None:
        self._left = iter(choices)

    def below(self, count: int) -> int:
        return next(self._left, 0) % count

    def pick(self, among: Any) -> Any:
        return among[self.below(len(among))]


@dataclass(frozen=True)
class Recorded:
    """What a transcript holds of a message."""

    message: Any
    written_by: str | None = None
    seal: str | None = None


def request(messages: list[Message]) -> dict[str, Any]:
    body = {"model": MODEL, "max_tokens": 9, "system": SYSTEM, "tools": TOOLS}
    return {**body, "messages": messages, "container": "container_1"}


def refusal(messages: list[Message]) -> ApiError | None:
    return check_request(request(messages), HEADERS)


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def user(*blocks: Any) -> Message:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> Message:
    return {"role": "assistant", "content": list(blocks)}


def result(call_id: str, content: Any = "ok", **more: Any) -> Block:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def thought(words: str = "hm", **more: Any) -> Block:
    return {"type": "thinking", "thinking": words, "signature": "s", **more}


def image(width: int = 10, height: int = 10, media_type: str = "image/png") -> Block:
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)
    data = base64.b64encode(header).decode()
    source = {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "image", "source": source}


def call(call_id: str, **more: Any) -> Block:
    return {"type": "tool_use", "id": call_id, "name": "bash", "input": {"n": 1}, **more}


def search(call_id: str) -> Block:
    return {"type": "server_tool_use", "id": call_id, "name": "web_search", "input": {"q": "x"}}


def found(call_id: str) -> Block:
    return {"type": "web_search_tool_result", "tool_use_id": call_id, "content": []}


def code(call_id: str) -> Block:
    return {"type": "server_tool_use", "id": call_id, "name": "code_execution", "input": {"c": "x"}}


def ran(call_id: str) -> Block:
    return {"type": "code_execution_tool_result", "tool_use_id": call_id, "content": {"out": "x"}}


def from_code(call_id: str, code_id: str) -> Block:
    return call(call_id, caller={"type": CODE, "tool_id": code_id})


def fed(*messages: Any) -> tuple[History, list[str]]:
    history = History(MODEL, FRAME)
    return history, [change for message in messages for change in history.add(message)]


def thinks(messages: list[Message]) -> int:
    return sum(block["type"] == "thinking" for m in messages for block in m["content"])


def signed(block: Block, digest: str) -> Block:
    if block["type"] != "thinking":
        return block
    return {**block, "signature": signature(digest, block["thinking"])}


@dataclass
class Talk:
    """A live session. `changes` is what its history ever reported; `habits`: the model sends
    blank text and uses ids again, images are odd, and prompts come while a server tool waits;
    `checked`: the model server looks at every request, or else the last will do."""

    tape: Tape
    habits: bool = False
    checked: bool = True
    history: History = field(default_factory=lambda: History(MODEL, FRAME))
    records: list[Recorded] = field(default_factory=list[Recorded])
    changes: list[str] = field(default_factory=list[str])
    _number: int = 0

    def run(self) -> Talk:
        for _ in range(1 + self.tape.below(PROMPTS)):
            self.user(*self.prompt())
            if not any(self.turn() for _ in range(self.tape.below(TURNS + 1))):
                self.assistant(*self.thoughts(), text(f"done {self._number}"))
        return self

    def user(self, *blocks: Block) -> None:
        self._add(Recorded({"role": "user", "content": list(blocks)}))

    def assistant(self, *blocks: Block) -> None:
        """An answer to what the history is, which the model accepts and signs."""
        messages = self.history.messages
        error = refusal(messages) if self.checked else None
        assert error is None, error
        content = [*blocks]
        if any(block["type"] == "thinking" for block in blocks):
            digest = segments(request(messages))[-1].digest
            content = [signed(block, digest) for block in blocks]
        if self.habits and self.tape.below(4) == 1:
            content.insert(self.tape.below(len(content) + 1), text(" \n"))
        message = {"role": "assistant", "content": content}
        self._add(Recorded(message, MODEL, self.history.seal(message)))

    def _add(self, record: Recorded) -> None:
        before = [*self.history.messages]
        self.records.append(record)
        self.changes += self.history.add(*json.loads(json.dumps(list(vars(record).values()))))
        if not self.habits:
            kept = (
                before if before and before[-1]["role"] != record.message["role"] else before[:-1]
            )
            assert all(a is b for a, b in zip(kept, self.history.messages, strict=False))

    def prompt(self) -> list[Block]:
        odd = [image(2001, 9), image(9, 8001), image(media_type="image/gif")] if self.habits else []
        return [text(f"prompt {self.new('')}"), *self.tape.pick([[], [], [image()], odd])]

    def thoughts(self) -> list[Block]:
        many = self.tape.below(3)
        return [{"type": "thinking", "thinking": f"hm {self.new('')}"} for _ in range(many)]

    def new(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}{self._number}"

    def new_call(self) -> str:
        again = self.habits and self.tape.below(8) == 1
        return "toolu_1" if again else self.new("toolu_")

    def results(self) -> None:
        odd = [text(" "), text("\ud83d"), image(2001, 9)] if self.habits else [text("x")]
        self.user(
            *[
                {
                    **tool_result(
                        block["id"], f"out {self.new('')}", is_error=self.tape.below(4) == 1
                    ),
                    **self.tape.pick([{}, {"content": ""}, {"content": [text("ok"), *odd]}]),
                }
                for block in self.history.open_calls()
            ]
        )

    def turn(self) -> bool:
        """Answers of the model and results until it has said all, or the user cuts it short;
        answers whether it is over."""
        say = self.tape.pick([[], [text(f"so {self.new('')}")]])
        server, before = self.new("srvtoolu_"), [*self.thoughts(), *say]
        match self.tape.below(5):
            case 0:
                self.assistant(
                    *before, *[call(self.new_call()) for _ in range(1 + self.tape.below(3))]
                )
                self.results()
                return False
            case 1:
                self.assistant(*before, search(server), found(server))
            case 2:
                self.assistant(*before, search(server), *(self.thoughts() if self.habits else ()))
                if self.habits and self.tape.below(3) == 1:
                    return True
                self.assistant(found(server), *self.thoughts(), text("found"))
            case 3:
                self.assistant(*before, search(server), call(self.new_call()))
                self.results()
                self.assistant(found(server), *self.thoughts(), text("found"))
            case _:
                self.assistant(*before, code(server), from_code(self.new_call(), server))
                self.results()
                if self.habits and self.tape.below(3) == 1:
                    return True
                self.assistant(*self.thoughts(), from_code(self.new_call(), server))
                self.results()
                self.assistant(ran(server), text("computed"))
        return True


JUNK: list[Any] = [
    None, 0, -1.5, True, "", " ", "x", "toolu_1", [], {}, [None], {"type": None}, {"type": "text"},
    [{"type": "text", "text": " "}], [{"type": "tool_result"}], "image", "tool_use", "tool_result",
    "server_tool_use", "user", "assistant", "system", {"type": CODE, "tool_id": "x"}, "a b",
    {"type": "thinking", "thinking": "x", "signature": ""}, {"type": "brand_new"}, text("y"),
    [{"type": "image", "source": {"type": "base64", "data": "?"}}], call("toolu_1"), found("x"),
    tool_result("toolu_2", "again", is_error=True), image(8001, 1), search("srvtoolu_1"), "\ud800",
]  # fmt: skip


def corrupt(records: list[Recorded], tape: Tape) -> list[Recorded]:
    """One thing that goes wrong with a record, or with one in it."""
    if not records:
        return records
    at = tape.below(len(records))
    before, record, after = records[:at], records[at], records[at + 1 :]
    match tape.below(8):
        case 0:
            return [*before, *after]
        case 1:
            return [*before, record, record, *after]
        case 2:
            return before
        case 3:
            rest = [*before, *after]
            other = tape.below(len(records))
            return [*rest[:other], record, *rest[other:]]
        case 4:
            writer = tape.pick([None, "claude-opus-5-5"])
            return [*before, replace(record, written_by=writer), *after]
        case 5 if record.seal is not None:
            return [*before, replace(record, seal="junk"), *after]
        case _:
            damaged = _damaged(record.message, tape)
            return [*before, replace(record, message=damaged), *after]


def _damaged(value: Any, tape: Tape) -> Any:
    """Some part of a message changed: a field or an element gone, doubled, moved or junk."""
    if not isinstance(value, dict | list) or not value or tape.below(6) == 5:
        return cast("Any", tape.pick(JUNK))
    value = cast("Any", value)
    if isinstance(value, dict):
        key = tape.pick(sorted(value))
        if tape.below(8) == 7:
            return {name: field for name, field in value.items() if name != key}
        return {**value, key: _damaged(value[key], tape)}
    at = tape.below(len(value))
    match tape.below(6):
        case 0:
            return value[:at] + value[at + 1 :]
        case 1:
            return [*value, value[at]]
        case 2:
            return [value[at], *value[:at], *value[at + 1 :]]
        case 3:
            return [*value, tape.pick(JUNK)]
        case _:
            return [*value[:at], _damaged(value[at], tape), *value[at + 1 :]]
