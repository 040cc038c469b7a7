"""The entry point: argv in, exit code out. What ends a command is reported here."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from io import TextIOWrapper
from typing import cast

from client.cli import exit_codes
from client.cli.context import Command, Context
from client.cli.output import Output
from client.cli.parser import parse
from client.cli.signals import Signals
from sidecar.protocol.errors import SidecarError


def main() -> int:
    for stream in (sys.stdout, sys.stderr):
        cast(TextIOWrapper, stream).reconfigure(errors="backslashreplace")  # lone surrogates
    out = Output("table", "auto")
    try:
        command, args = parse(sys.argv[1:])
        out = Output(args.output, args.color)
        command.prepare(args)
        return asyncio.run(_run(command, args, out))
    except SidecarError as error:
        out.error(error)
        return exit_codes.of_error(error)
    except KeyboardInterrupt:
        return exit_codes.BY_SIGNAL + signal.SIGINT
    except BrokenPipeError:
        # whoever read us has enough; the interpreter must not complain at its last flush either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.BROKEN_PIPE


async def _run(command: Command, args: argparse.Namespace, out: Output) -> int:
    signals = Signals(cast("asyncio.Task[int]", asyncio.current_task()))
    try:
        async with asyncio.timeout(args.timeout):
            return await command.run(Context(args, out, signals))
    except asyncio.CancelledError:
        if signals.caught is None:
            raise
        return exit_codes.BY_SIGNAL + signals.caught
    except TimeoutError:
        raise SidecarError(
            "timed_out",
            f"not done within {args.timeout:g} s",
            "a longer --timeout; what was begun goes on",
        ) from None
