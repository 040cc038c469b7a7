"""The messages of a request: roles that alternate, and what they have been so far.

Used by `history`, which decides what may stand in them. Elements of `items` are replaced and
never changed, so that a serialiser may keep what it made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress

from session_worker import images
from session_worker.blocks import (
    SERVER_CALLS,
    THINKING,
    Block,
    Message,
    is_server_result,
    without_last_thoughts,
)

Change = Callable[[Block], Block | None]
"""What becomes of a block, which stays itself if nothing does; None leaves it out."""


class Messages:
    """Neighbours of one role become one message, and no message is empty."""

    def __init__(self) -> None:
        self.items: list[Message] = []
        self._images = 0
        self._large = False

    def role(self) -> str | None:
        """Who spoke last."""
        return self.items[-1]["role"] if self.items else None

    def append(self, role: str, content: list[Block]) -> None:
        self._images += sum(map(images.count, content))
        self._large = self._large or any(_without_large(block) is not block for block in content)
        if content and self.role() == role:
            self.items[-1] = {"role": role, "content": [*self.items[-1]["content"], *content]}
        elif content:
            self.items.append({"role": role, "content": content})

    def exchange(self) -> tuple[list[Block], list[Block]]:
        """The tool calls of the last answer, and what the user has said since."""
        said = self.items[-1:] if self.role() == "user" else []
        before = self.items[-2:-1] if said else self.items[-1:]
        answer = [b for m in before if m["role"] == "assistant" for b in m["content"]]
        calls = [block for block in answer if block["type"] == "tool_use"]
        return calls, said[0]["content"] if said else []

    def say(self, content: list[Block], new: list[Block]) -> None:
        """Let this be what the user has said since the last answer; `new` of it is new."""
        if self.role() == "user":
            self.items.pop()
        before = self._images + sum(map(images.count, new))
        self.append("user", content)
        self._images = before

    def rewrite(self, change: Change, start: int = 0) -> bool:
        """Edit what has been sent, from that message on, and answer whether there was anything
        to edit. Thinking behind the first edit goes: its signature has become bad."""
        rest, self.items = self.items[start:], self.items[:start]
        edited = False
        for message in rest:
            content: list[Block] = []
            for block in message["content"]:
                after = change(block)
                edited = edited or after is not block
                if after is not None and not (edited and after["type"] in THINKING):
                    content.append(after)
            if images.same(content, message["content"]) and self.role() != message["role"]:
                self.items.append(message)
            else:
                self.append(message["role"], without_last_thoughts(content))
        if edited:
            self._count()
        return edited

    def fit(self, new: list[Block]) -> tuple[list[Block], bool]:
        """`new`, to be appended next, under the rule about the sides of many images; it holds
        for those before as well. Answers whether any had to go."""
        if self._images + sum(map(images.count, new)) <= images.MANY:
            return new, False
        small = [_without_large(block) for block in new]
        edited = self._large and self.rewrite(_without_large)
        return small, edited or not images.same(small, new)

    def first_of(self, server_calls: Collection[str]) -> int:
        """The last answer with no such call before it: none of `server_calls` is older."""
        missing = set(server_calls)
        for index in range(len(self.items) - 1, -1, -1):
            content: list[Block] = self.items[index]["content"]
            missing -= {block["id"] for block in content if block["type"] in SERVER_CALLS}
            if not missing and self.items[index]["role"] == "assistant":
                return index
        return 0

    def images_at(self, paths: Collection[str]) -> list[Block]:
        """The images and documents that the paths of an API error lead to."""
        found: list[Block] = []
        for path in paths:
            at = [int(part) for part in path.split(".") if part.isdecimal()]
            with suppress(IndexError, TypeError, KeyError, ValueError):
                block = self.items[at[0]]["content"][at[1]]
                found.append(block["content"][at[2]] if at[2:] else block)
        return [block for block in found if block["type"] in images.SHOWN]

    def is_border(self, index: int) -> bool:
        """Whether nothing from that message on belongs to anything before it."""
        head, tail = self.items[:index], self.items[index:]
        waiting: set[str] = set()
        for block in (block for message in head for block in message["content"]):
            if block["type"] in SERVER_CALLS:
                waiting.add(block["id"])
            elif is_server_result(block):
                waiting.discard(block["tool_use_id"])
        if not tail:
            return not waiting and not self.exchange()[0]
        return not waiting and tail[0]["content"][0]["type"] != "tool_result"

    def restart(self, content: list[Block], keep_from: int) -> None:
        """Let the user say `content` in the place of all before that message, and drop thinking."""
        kept = self.items[keep_from:]
        self.items = []
        self.append("user", content)
        for message in kept:
            self.append(
                message["role"], [b for b in message["content"] if b["type"] not in THINKING]
            )
        self._count()

    def _count(self) -> None:
        blocks = [block for message in self.items for block in message["content"]]
        self._images = sum(map(images.count, blocks))
        self._large = any(_without_large(block) is not block for block in blocks)


def _without_large(block: Block) -> Block:
    why = f"over {images.MANY_SIDE_PX} pixels, and there are over {images.MANY} images"
    return images.without(block, lambda image: images.side(image) > images.MANY_SIDE_PX, why)
