"""SIGINT and SIGTERM as the cancellation of the command under way, so that it can clean up."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Generator
from typing import Any


class Signals:
    """`caught` is the signal that ended the command, if one did."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.caught: signal.Signals | None = None
        self._task = task
        self._on_interrupt: Callable[[], bool] | None = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                asyncio.get_running_loop().add_signal_handler(number, self._caught, number)

    @contextlib.contextmanager
    def interrupts(self, handle: Callable[[], bool]) -> Generator[None]:
        """While this is open Ctrl-C calls `handle`; true from it means that it is dealt with."""
        self._on_interrupt = handle
        try:
            yield
        finally:
            self._on_interrupt = None

    def _caught(self, number: signal.Signals) -> None:
        handled = number == signal.SIGINT and self._on_interrupt and self._on_interrupt()
        if not handled:
            self.caught = number
            self._task.cancel()
