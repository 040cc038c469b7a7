"""The client whose prompt a run answers, as the run's tools may ask it: for files as it has them
open, and for terminals (acp.md §2.2).

Only what it offers is asked of it, and no other client is ever asked. What it says is checked; what
it fails at is an `EditorFailed`, never an exception of a protocol.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, StrictStr, ValidationError

from sidecar.protocol import bounds

READ = "fs/read_text_file"
WRITE = "fs/write_text_file"
TERMINAL = "terminal/create"

Json = dict[str, Any]
M = TypeVar("M", bound=BaseModel)


class EditorFailed(Exception):
    """The text goes on from "the client …". `is_certain`: what was asked was not done."""

    def __init__(self, text: str, *, is_certain: bool, fell_silent: bool = False) -> None:
        super().__init__(text)
        self.is_certain = is_certain
        self.fell_silent = fell_silent


class Done(BaseModel):
    """An answer in which nothing is said."""


class _Content(BaseModel):
    content: StrictStr


@dataclass
class Editor:
    """One run's. `offers` are methods; `is_there` turns false when the client leaves. `send` asks
    it: method, params, how long for an answer, and how long for one that comes in spite of a
    cancellation. `tell` is a notice for people, `show` an update that only this client gets."""

    session_id: str
    offers: frozenset[str]
    is_there: Callable[[], bool]
    send: Callable[[str, Json, float, float], Awaitable[Any]]
    tell: Callable[[str], None]
    show: Callable[[Json], None]
    _told: bool = False
    _is_silent: bool = False

    @property
    def reads(self) -> bool:
        """Not any more once it has fallen silent: each file would wait for it again."""
        return READ in self.offers and self.is_there() and not self._is_silent

    @property
    def writes(self) -> bool:
        return WRITE in self.offers and self.is_there()

    @property
    def has_terminal(self) -> bool:
        return TERMINAL in self.offers and self.is_there()

    async def read(self, path: Path) -> str:
        """The text of a file as the client has it. Raises `EditorFailed`."""
        try:
            text = (await self.ask(READ, _Content, {"path": str(path)})).content
            text.encode()
        except UnicodeEncodeError:
            raise EditorFailed("answered with what is no text", is_certain=True) from None
        except EditorFailed as failure:
            self._is_silent |= failure.fell_silent
            raise
        return text

    async def write(self, path: Path, text: str) -> None:
        """Raises `EditorFailed`. A cancelled write whose answer comes all the same has happened;
        if the cancellation leaves and it is unknown whether it was done, its text says so."""
        params = {"path": str(path), "content": text}
        await self.ask(WRITE, Done, params, settle_s=bounds.CLIENT_SETTLE_S)

    async def ask(
        self,
        method: str,
        shape: type[M],
        params: Json,
        *,
        timeout_s: float = bounds.CLIENT_CALL_S,
        settle_s: float = 0.0,
    ) -> M:
        """The result, of that shape. Raises `EditorFailed`."""
        if not self.is_there():
            raise EditorFailed("has left", is_certain=True)
        params = {"sessionId": self.session_id, **params}
        result = await self.send(method, params, timeout_s, settle_s)
        try:
            return shape.model_validate({} if result is None else result)
        except ValidationError:
            raise EditorFailed(
                f"answered {method} with what makes no sense", is_certain=False
            ) from None

    def tell_of(self, failure: EditorFailed) -> None:
        """People hear once a run that files are read from the disk, and why."""
        if not self._told:
            self._told = True
            self.tell(
                f"Files are read from the disk, without unsaved changes: the client {failure}"
            )
