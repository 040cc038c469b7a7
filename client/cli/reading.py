"""`sidecarctl events`, `transcript` and `url`: a session from outside."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from contextlib import aclosing

from client import endpoint
from client.cli import exit_codes
from client.cli.context import Command, Context, id_argument
from client.errors import UsageError
from client.session import Session
from sidecar.protocol import markdown
from sidecar.protocol.methods import ENDED_STATES
from sidecar.protocol.paths import places
from sidecar.protocol.session_info import SessionInfo

_FORMATS = {"md": "markdown", "json": "json", "jsonl": "jsonl"}
_EXAMPLE = "What is the current git branch?"


async def _events(context: Context) -> int:
    async with context.connect() as sidecar:
        session = await sidecar.session(context.args.id)
        read = session.events if context.args.follow else session.recorded
        async with aclosing(read(context.args.since)) as events:
            async for event in events:
                context.out.value(event)
    return exit_codes.OK


async def _transcript(context: Context) -> int:
    async with context.connect() as sidecar:
        session = await sidecar.session(context.args.id)
        if session.info["state"] in ENDED_STATES:
            text = _kept_transcript(session, context.out.format)
        else:
            text = await session.transcript(_FORMATS[context.out.format])
    context.out.data(text.rstrip("\n") + "\n")
    return exit_codes.OK


def _kept_transcript(session: Session, format: str) -> str:
    """Of an ended session nobody is left to ask, but the file is there. Raises `UsageError`."""
    try:
        raw = places(os.environ).session(session.id).transcript.read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"session {session.info['name']} left no transcript",
            f"sidecarctl session show {session.id}",
        ) from None
    whole, _, _torn = raw.rpartition(b"\n")
    if format == "jsonl":
        return whole.decode()
    records = [json.loads(line) for line in whole.split(b"\n") if line]
    if format == "json":
        return json.dumps({"session_id": session.id, "records": records})
    return markdown.render(records)


async def _url(context: Context) -> int:
    async with context.connect() as sidecar:
        info = (await sidecar.session(context.args.id)).info
    if context.args.curl:
        context.out.data(_curl(info) + "\n")
    elif context.out.format == "table":
        where = info["endpoint"]
        context.out.data(f"{where['url'] or where['socket']}\n")
    else:
        context.out.value(info["endpoint"])
    return exit_codes.OK


def _curl(info: SessionInfo) -> str:
    """A command line that streams a prompt, ready for a shell."""
    where = info["endpoint"]
    command = ["curl", "-sN", "-H", "Content-Type: application/json"]
    if where["url"]:
        command += ["-H", f"Authorization: Bearer {where['token']}", f"{where['url']}/runs"]
    else:
        command += ["--unix-socket", where["socket"], "http://localhost/runs"]
    return shlex.join([*command, "-d", json.dumps(endpoint.run_request(_EXAMPLE, "stream"))])


def _events_arguments(parser: argparse.ArgumentParser) -> None:
    id_argument(parser)
    add = parser.add_argument
    add("-f", "--follow", action="store_true", help="until the session ends")
    add("--since", type=int, default=0, metavar="SEQ", help="only those after this number")


def _url_arguments(parser: argparse.ArgumentParser) -> None:
    id_argument(parser)
    parser.add_argument("--curl", action="store_true", help="a command line that streams a prompt")


COMMANDS = {
    "events": Command(
        "the numbered events of a session", _events, _events_arguments, formats=("jsonl",)
    ),
    "transcript": Command(
        "what was said and done, for people or programs",
        _transcript,
        id_argument,
        formats=tuple(_FORMATS),
    ),
    "url": Command("where the session's HTTP endpoint is", _url, _url_arguments),
}
