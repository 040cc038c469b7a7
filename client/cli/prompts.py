"""`sidecarctl prompt`, `run` and `cancel`."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from contextlib import aclosing
from typing import Any

from client.cli import exit_codes, question
from client.cli.asking import NOBODY, asking
from client.cli.context import Command, Context, id_argument
from client.cli.create import create_arguments, create_session, show_notices
from client.cli.run_printer import RunPrinter
from client.errors import UsageError
from client.session import Session
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.paths import places

_LEAVE_WITHIN_S = 2.0
"""A second Ctrl-C this soon after the first means: do not wait for the run to end."""


async def _prompt(context: Context) -> int:
    async with context.connect() as sidecar:
        session = await sidecar.session(context.args.id)
        if not context.args.no_wait:
            return await _stream(context, session, steer=context.args.steer)
        run = await session.start(context.args.text, steer=context.args.steer)
    if context.out.format == "table":
        context.out.data(f"{run['run_id']}\n")
    else:
        context.out.value(run)
    return exit_codes.OK


async def _run(context: Context) -> int:
    async with context.connect() as sidecar:
        creating = asyncio.ensure_future(create_session(context, sidecar))
        try:
            session = await asyncio.shield(creating)
            await show_notices(context, session)
            return await _stream(context, session)
        finally:
            # interrupted or not: what was asked for will exist, and must not stay
            await (await creating).destroy()


async def _cancel(context: Context) -> int:
    async with context.connect() as sidecar:
        await (await sidecar.session(context.args.id)).cancel()
    return exit_codes.OK


async def _stream(context: Context, session: Session, *, steer: bool = False) -> int:
    """Prompt, show the run, and answer with its exit code. Ctrl-C cancels the run.

    Raises `SidecarError` (`forbidden`) after a run that needed a permission nobody could give.
    """
    cancels: list[asyncio.Task[None]] = []
    asked_at = float("-inf")

    def cancel_run() -> bool:
        nonlocal asked_at
        previous, asked_at = asked_at, time.monotonic()
        if asked_at - previous < _LEAVE_WITHIN_S:
            return False
        context.out.note("cancelling the run; Ctrl-C again leaves at once")
        cancels.append(asyncio.ensure_future(session.cancel()))
        return True

    printer = RunPrinter(context.out, live=context.out.seen_live)
    result: dict[str, Any] = {}
    with context.signals.interrupts(cancel_run):
        async with (
            aclosing(session.stream(context.args.text, steer=steer)) as events,
            asking(session, printer, context.out, at_terminal=context.args.at_terminal) as asker,
        ):
            async for event in events:
                await asker.heard(event)
                if context.out.format == "table":
                    printer.show(event)
                elif context.out.format == "jsonl":
                    context.out.value(event)
                result = event["data"]
        for failed in await asyncio.gather(*cancels, return_exceptions=True):
            if isinstance(failed, SidecarError):
                context.out.error(failed)
    if context.out.format == "json":
        context.out.value(result)
    if cancels:
        return exit_codes.BY_SIGNAL + signal.SIGINT
    if asker.unasked:
        raise SidecarError(
            "forbidden",
            f"a permission was needed, and {NOBODY}",
            question.how_to_allow(asker.unasked, str(places(os.environ).config)),
        )
    return exit_codes.of_result(result)


def _read_text(args: argparse.Namespace) -> None:
    text = " ".join(args.words)
    args.at_terminal = sys.stdin.isatty() and sys.stderr.isatty() and not args.no_input
    if text == "-" or not (text or sys.stdin.isatty()):
        args.at_terminal = False
        text = sys.stdin.buffer.read().decode(errors="replace")
    if not text.strip():
        raise UsageError("there is no prompt", "sidecarctl run 'what to do'")
    args.text = text


def _prompt_arguments(parser: argparse.ArgumentParser) -> None:
    id_argument(parser)
    _text_argument(parser)
    add = parser.add_argument
    add("--no-wait", action="store_true", help="print the run's id and leave")
    add("--steer", action="store_true", help="go along with the run under way, do not wait for it")


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    create_arguments(parser)
    _text_argument(parser)


def _text_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="TEXT", help="the prompt; - or none: from stdin"
    )


COMMANDS = {
    "prompt": Command("prompt a session and show the run", _prompt, _prompt_arguments, _read_text),
    "run": Command("create, prompt, show, destroy", _run, _run_arguments, _read_text),
    "cancel": Command("end the run of a session; the session stays", _cancel, id_argument),
}
