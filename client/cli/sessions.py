"""`sidecarctl session …`."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from datetime import UTC, datetime
from typing import Any

from client.cli import exit_codes
from client.cli.context import Command, Context, id_argument
from client.cli.create import (
    create_arguments,
    create_session,
    env_arguments,
    show_notices,
)
from client.errors import UsageError
from client.settings import find_env_file, session_env
from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.methods import STATES
from sidecar.protocol.paths import places
from sidecar.protocol.session_info import SessionInfo

_FORMATS = ("table", "json", "jsonl", "name")
_HEADER = ("ID", "NAME", "STATE", "AGE", "PID", "MODEL", "CWD")
_SHORT_ID = 8
"""Characters of an id in tables: enough to tell sessions apart, and to name one."""


async def _create(context: Context) -> int:
    async with context.connect() as sidecar:
        session = await create_session(context, sidecar)
        await show_notices(context, session)
        if context.args.prompt is not None:
            await session.start(context.args.prompt)
    if context.out.format == "table":
        context.out.note(f"created {session.info['name']} ({session.info['model']})")
        context.out.data(f"{session.id}\n")
    else:
        _show_info(context, session.info)
    return exit_codes.OK


async def _ls(context: Context) -> int:
    async with context.connect() as sidecar:
        sessions = await sidecar.list(all=context.args.all, state=context.args.state)
    match context.out.format:
        case "table":
            context.out.table(_HEADER, map(_row, sessions))
        case "json":
            context.out.value({"sessions": sessions, "next_cursor": None})
        case _:
            for info in sessions:
                _show_info(context, info)
    return exit_codes.OK


async def _show(context: Context) -> int:
    async with context.connect() as sidecar:
        _show_info(context, await sidecar.status(context.args.id))
    return exit_codes.OK


async def _rename(context: Context) -> int:
    async with context.connect() as sidecar:
        _show_info(context, await sidecar.rename(context.args.id, context.args.name))
    return exit_codes.OK


async def _resume(context: Context) -> int:
    args = context.args
    env_file = find_env_file(args.env_file, places(os.environ).config.parent)
    env = session_env(args.env, env_file, os.environ)
    async with context.connect() as sidecar:
        _show_info(context, (await sidecar.resume(args.id, env)).info)
    return exit_codes.OK


async def _destroy(context: Context) -> int:
    args = context.args
    code = exit_codes.OK
    async with context.connect() as sidecar:
        ids = args.ids or [i["session_id"] for i in await sidecar.list() if not i["parent"]]
        ends = (sidecar.destroy(i, grace_s=args.grace_s, purge=args.purge) for i in ids)
        for end in await asyncio.gather(*ends, return_exceptions=True):
            if isinstance(end, SidecarError):
                context.out.error(end)
                code = code or exit_codes.of_error(end)
            elif isinstance(end, BaseException):
                raise end
            elif context.out.format == "table":
                context.out.data(f"{end['session_id']}\n")
            else:
                _show_info(context, end)
    return code


def _confirm(args: argparse.Namespace) -> None:
    if bool(args.ids) == args.all:
        raise UsageError("name sessions, or all of them", "sidecarctl session destroy ID… | --all")
    if not args.all or args.force:
        return
    if args.no_input or not sys.stdin.isatty():
        raise UsageError("--all needs a yes", "add --force")
    sys.stderr.write("destroy every live session? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was destroyed", "answer y, or add --force")


def _show_info(context: Context, info: SessionInfo | dict[str, Any]) -> None:
    match context.out.format:
        case "table":
            endpoint = {**info["endpoint"], "token": None}  # screens are shared: `url` tells it
            context.out.fields({**info, "endpoint": endpoint})
        case "name":
            context.out.data(f"{info['session_id']}\n")
        case _:
            context.out.value(info)


def _row(info: SessionInfo) -> tuple[str, ...]:
    return (
        info["session_id"][:_SHORT_ID],
        f"{info['name']} (of {info['parent'][:_SHORT_ID]})" if info["parent"] else info["name"],
        info["state"],
        _age(info["created_at"]),
        str(info["pid"] or "-"),
        info["model"],
        info["cwd"],
    )


def _age(since: str) -> str:
    seconds = max(0, int((datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    create_arguments(parser)
    parser.add_argument("--prompt", metavar="TEXT", help="start a run with it, and do not wait")


def _resume_arguments(parser: argparse.ArgumentParser) -> None:
    id_argument(parser)
    env_arguments(parser)


def _ls_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-a", "--all", action="store_true", help="ended sessions too")
    parser.add_argument("--state", choices=STATES)


def _rename_arguments(parser: argparse.ArgumentParser) -> None:
    id_argument(parser)
    parser.add_argument("name")


def _destroy_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("ids", nargs="*", metavar="ID")
    add("--all", action="store_true", help="every live session")
    add("--force", action="store_true", help="do not ask")
    add(
        "--grace",
        type=float,
        dest="grace_s",
        metavar="S",
        default=bounds.DESTROY_GRACE_DEFAULT_S,
        help="before it is killed, default: %(default)s",
    )
    add("--purge", action="store_true", help="delete transcript and logs, too")


COMMANDS = {
    "session create": Command(
        "start a session and print its id", _create, _create_arguments, formats=_FORMATS
    ),
    "session ls": Command("list sessions", _ls, _ls_arguments, formats=_FORMATS),
    "session show": Command("one session, with its resources", _show, id_argument),
    "session resume": Command(
        "bring an ended session up again", _resume, _resume_arguments, formats=_FORMATS
    ),
    "session rename": Command("give a session another name", _rename, _rename_arguments),
    "session destroy": Command(
        "end sessions and all their processes",
        _destroy,
        _destroy_arguments,
        prepare=_confirm,
        formats=_FORMATS,
    ),
}
