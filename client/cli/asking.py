"""Puts the questions of a run to the person at the terminal while the run is shown.

Used by `prompt` and `run`. Where nobody is at the terminal it rejects, at once and each time. It
never says yes by itself.
"""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from client.cli import question
from client.cli.output import YELLOW, Output
from client.cli.question import Json
from client.cli.run_printer import RunPrinter
from client.errors import ConnectionLost, EndpointRefusal, Unreachable
from client.session import RECONNECT_PAUSE_S, Session
from sidecar.protocol import bounds, events
from sidecar.protocol.events import Envelope

NOBODY = "nobody is at the terminal of sidecarctl"
LINE_BYTES = 4096
"""The longest line that a terminal hands over at once."""


class _Withdrawn(Exception):
    """There is nothing left to answer."""


class Asker:
    """One command's. Feed it the events of the run; `unasked` is what it rejected by itself."""

    def __init__(
        self, session: Session, printer: RunPrinter, out: Output, *, at_terminal: bool
    ) -> None:
        self.unasked: list[Json] = []
        self._session = session
        self._printer = printer
        self._out = out
        self._at_terminal = at_terminal
        self._run_id: str | None = None
        self._open: dict[str, Json] = {}
        """The questions that wait, oldest first. The first one is being asked."""
        self._known: set[str] = set()
        """Every id that came: a question may be told twice, again behind a gap."""
        self._came = asyncio.Event()
        self._typed: asyncio.Future[str] | None = None

    async def heard(self, event: Envelope) -> None:
        data = event["data"]
        self._run_id = self._run_id or event["run_id"]
        match event["type"]:
            case events.PERMISSION_REQUESTED if event.get("truncated"):
                await self._look(event["run_id"])
            case events.PERMISSION_REQUESTED:
                self._add(data)
            case events.PERMISSION_RESOLVED:
                self._withdraw(data["request_id"])
            case events.GAP | events.RESTARTED:
                await self._look(None)
            case _:
                pass

    async def _look(self, run_id: str | None) -> None:
        """Withdraw what is not open any more, and add what is open of the run, for want of an
        event that said it. A worker that is just gone takes its questions along."""
        with suppress(Unreachable, ConnectionLost):
            pending = {asked["request_id"]: asked for asked in await self._session.permissions()}
            for gone in self._open.keys() - pending.keys():
                self._withdraw(gone)
            for asked in pending.values():
                if asked["run_id"] == run_id:
                    self._add(asked)

    def _add(self, asked: Json) -> None:
        if asked["request_id"] not in self._known:
            self._known.add(asked["request_id"])
            self._open[asked["request_id"]] = asked
            self._came.set()

    def _withdraw(self, request_id: str) -> None:
        is_asked = request_id == next(iter(self._open), None)
        self._open.pop(request_id, None)
        if is_asked and self._typed and not self._typed.done():
            self._typed.set_exception(_Withdrawn())

    async def work(self) -> None:
        """Settles what is open, one after another, until it is cancelled."""
        while True:
            while not self._open:
                self._came.clear()
                await self._came.wait()
            asked = next(iter(self._open.values()))
            chosen = await self._ask(asked) if self._at_terminal else None
            if self._open.pop(asked["request_id"], None) is None:
                continue
            if chosen:
                await self._answer(asked, *chosen)
            elif asked["run_id"] != self._run_id:
                # of the run that ours goes along with: whoever started that one may be there
                note = f"the session waits for a permission: {question.title(asked)}"
                self._out.note(note, YELLOW)
            else:
                self.unasked.append(asked)
                if not await self._answer(asked, "reject_once", NOBODY):
                    self.unasked.remove(asked)

    async def _answer(self, asked: Json, option_id: str, reason: str) -> bool:
        """Whether the answer counted."""
        while True:
            try:
                await self._session.answer(asked["request_id"], option_id, reason)
                return True
            except EndpointRefusal as refusal:
                if refusal.status != 403:
                    raise
                self._out.note(refusal.message, YELLOW)  # somebody was faster
                return False
            except (Unreachable, ConnectionLost):
                # for as long as the run's own stream does not give up
                await asyncio.sleep(RECONNECT_PAUSE_S)

    async def _ask(self, asked: Json) -> tuple[str, str] | None:
        """The option and the reason; None if it was withdrawn, or nothing will be typed here."""
        keys = [str(number) for number in range(1, len(asked["options"]) + 1)]
        by_key = dict(zip(keys, asked["options"], strict=True))
        self._printer.pause()
        try:
            # what was typed before this question was seen does not answer it
            termios.tcflush(sys.stdin, termios.TCIFLUSH)
            for text, style in question.lines(asked, keys):
                self._out.note(text, style)
            while (option := by_key.get(await self._line(asked, f"answer 1-{keys[-1]}: "))) is None:
                self._out.note("nothing was chosen; Ctrl-C cancels the run", YELLOW)
            if option["kind"].startswith("allow"):
                return option["optionId"], ""
            reason = ""
            with suppress(EOFError):
                reason = await self._line(asked, "why, in a line for the agent, or nothing: ")
            return option["optionId"], reason if reason.isprintable() else ""
        except _Withdrawn:
            self._out.note("withdrawn: it was answered elsewhere, or its run ends", YELLOW)
            return None
        except EOFError:
            self._at_terminal = False
            return None
        finally:
            self._printer.resume()

    async def _line(self, asked: Json, prompt: str) -> str:
        """What is typed in answer. Raises `_Withdrawn`, and EOFError if nothing ever will be."""
        if asked["request_id"] not in self._open:
            raise _Withdrawn
        loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
        typed = self._typed = loop.create_future()
        self._out.aside(prompt)
        loop.add_reader(terminal, _read, terminal, typed)
        try:
            return (await typed)[: bounds.PERMISSION_REASON_CHARS]
        except BaseException:
            self._out.aside("\n")
            raise
        finally:
            loop.remove_reader(terminal)
            self._typed = None


def _read(terminal: int, typed: asyncio.Future[str]) -> None:
    """Called when there is a line, so it does not block."""
    if typed.done():
        return
    try:
        line = os.read(terminal, LINE_BYTES)
    except OSError:
        line = b""  # the terminal is gone
    if line:
        typed.set_result(line.decode(errors="replace").strip())
    else:
        typed.set_exception(EOFError())


@asynccontextmanager
async def asking(
    session: Session, printer: RunPrinter, out: Output, *, at_terminal: bool
) -> AsyncGenerator[Asker]:
    """Asks while this is open. What goes wrong with that ends the block."""
    asker = Asker(session, printer, out, at_terminal=at_terminal)
    try:
        async with asyncio.TaskGroup() as group:
            work = group.create_task(asker.work())
            yield asker
            work.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
