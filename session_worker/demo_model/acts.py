"""How a script acts: it yields what to say and to call, and is sent what came of it.

Used by `intents` and `repair`. A script remembers nothing: for each request it plays from its
start, and the conversation answers it as far as it goes.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from session_worker.demo_model.conversation import Call, Tools
from session_worker.demo_model.reply import Json, text, tool_use
from session_worker.demo_model.wording import Words, calling

T = TypeVar("T")
Acts = Generator[list[Json], list[Call], T]
"""Yields the content of one answer, is sent its calls with their results."""

UNREAD = re.compile(r"; read it (?:first|again)\b")
"""What file tools say of a file that the model does not know as it is."""


@dataclass(frozen=True)
class Outcome:
    """What to report of something; if it is not done, nothing behind it is begun."""

    paragraphs: list[str]
    is_done: bool


def make(say: str, calls: Sequence[Json], tools: Tools, words: Words) -> Acts[list[Call]]:
    """The calls with their results; one that wants its file read first is made again after that."""
    made = yield [text(say), *calls]
    unread = [
        call
        for call in made
        if call.is_error and "path" in call.arguments and UNREAD.search(call.result)
    ]
    if not unread or "read_file" not in tools:
        return made
    reads = [tool_use("read_file", {"path": call.arguments["path"]}) for call in unread]
    yield [text(calling(reads, words)), *reads]
    again = [tool_use(call.name, call.arguments) for call in unread]
    repeated = yield [text(calling(again, words)), *again]
    return [call for call in made if call not in unread] + repeated
