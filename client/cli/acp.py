"""`sidecarctl acp`: what an editor starts as its agent (docs/acp.md)."""

from __future__ import annotations

import argparse
import os
import sys

from client.api import CreateParams
from client.cli import exit_codes
from client.cli.context import Command, Context
from sidecar.protocol.methods import PERMISSION_MODES


async def _acp(context: Context) -> int:
    from client.acp.bridge import serve  # only for who is an agent
    from client.acp.sessions import Sessions
    from client.acp.stdio import Stdio

    args = context.args
    if sys.stdin.isatty():
        context.out.note("an editor is expected here, which speaks the Agent Client Protocol")
    asked = {"mode": args.mode, "model": args.model}
    defaults = CreateParams(**{name: value for name, value in asked.items() if value is not None})
    protocol = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing else gets among the messages
    stdio = await Stdio.open(sys.stdin.fileno(), protocol)
    try:
        async with Sessions(context.connect, defaults, args.session) as sessions:
            await serve(stdio, sessions)
    except ConnectionError:
        raise BrokenPipeError from None  # which `main` knows: nobody reads stdout
    finally:
        await stdio.close()
    return exit_codes.OK


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--session", metavar="ID", help="every new session of the editor is this one")
    add("--mode", choices=PERMISSION_MODES, help="of new sessions; default: the configuration's")
    add("--model", help="of new sessions; default: MODEL_ID")


COMMANDS = {
    "acp": Command(
        "be the agent of an editor, over stdin and stdout", _acp, _arguments, formats=("jsonl",)
    ),
}
