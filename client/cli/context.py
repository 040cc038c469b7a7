"""What every command of `sidecarctl` is handed, and what a command is."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from client.api import Sidecar
from client.cli.output import Output
from client.cli.signals import Signals


@dataclass(frozen=True)
class Context:
    args: argparse.Namespace
    out: Output
    signals: Signals

    def connect(self, *, start: bool = True) -> AbstractAsyncContextManager[Sidecar]:
        """The daemon; started if need be, unless `--no-start` or a `--socket` of its own."""
        return Sidecar.connect(self.args.socket, start=start and not self.args.no_start)


def id_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="id, unique start of it, or name")


def _nothing(_: object) -> None:
    pass


@dataclass(frozen=True)
class Command:
    """`formats` are the values of `-o` it knows, its default first. `run` gives the exit code.

    `prepare` may read stdin: it is called before there is an event loop, where Ctrl-C works.
    """

    summary: str
    run: Callable[[Context], Awaitable[int]]
    arguments: Callable[[argparse.ArgumentParser], None] = _nothing
    prepare: Callable[[argparse.Namespace], None] = _nothing
    formats: tuple[str, ...] = ("table", "json", "jsonl")
