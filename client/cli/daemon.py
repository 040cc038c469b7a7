"""`sidecarctl daemon …` and `version`."""

from __future__ import annotations

import argparse
import os
import sys

from client.api import Sidecar
from client.cli import exit_codes
from client.cli.context import Command, Context
from client.errors import Unreachable, UsageError
from client.launch import daemon_command, daemon_env
from sidecar.protocol import VERSION


def _exec_if_foreground(args: argparse.Namespace) -> None:
    if args.foreground:
        os.execve(sys.executable, daemon_command(), daemon_env(os.environ))


async def _start(context: Context) -> int:
    if context.args.no_start or context.args.socket:
        raise UsageError(
            "a daemon is started for the places of this environment",
            "leave out --no-start and --socket; SIDECAR_HOME chooses other places",
        )
    async with context.connect() as sidecar:
        await _show_status(context, sidecar)
    return exit_codes.OK


async def _status(context: Context) -> int:
    async with context.connect(start=False) as sidecar:
        await _show_status(context, sidecar)
    return exit_codes.OK


async def _show_status(context: Context, sidecar: Sidecar) -> None:
    status = await sidecar.daemon_status()
    if context.out.format == "table":
        context.out.fields(status)
    else:
        context.out.value(status)


async def _stop(context: Context) -> int:
    args = context.args
    try:
        async with context.connect(start=False) as sidecar:
            await sidecar.shutdown(stop_sessions=args.stop_sessions, drain_s=args.drain_s)
    except Unreachable:
        context.out.note("no daemon is running")
    return exit_codes.OK


async def _version(context: Context) -> int:
    if context.out.format == "table":
        context.out.data(f"sidecarctl {VERSION}\n")
    else:
        context.out.value({"version": VERSION})
    return exit_codes.OK


def _start_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--foreground", action="store_true", help="be the daemon, log to stderr")


def _stop_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--drain", type=float, dest="drain_s", default=0.0, metavar="S", help="let runs finish")
    add("--stop-sessions", action="store_true", help="end every session as well")


COMMANDS = {
    "daemon start": Command(
        "start the daemon, unless it runs", _start, _start_arguments, _exec_if_foreground
    ),
    "daemon stop": Command("stop the daemon; sessions live on", _stop, _stop_arguments),
    "daemon status": Command("the daemon, its sessions and resources", _status),
    "version": Command("the version of this program", _version),
}
