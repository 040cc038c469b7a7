"""The flags that describe a session to be, shared by `session create` and `run`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from client.api import CreateParams, Sidecar
from client.cli.context import Context
from client.cli.output import YELLOW
from client.errors import UsageError
from client.session import Session
from client.settings import find_env_file, session_env
from sidecar.protocol import bounds
from sidecar.protocol.events import NOTICE
from sidecar.protocol.methods import PERMISSION_MODES
from sidecar.protocol.paths import places


def create_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--name", help="letters, digits, _ . - and spaces")
    add("--cwd", type=Path, default=Path(), metavar="DIR", help="default: here")
    add("--model", help="default: MODEL_ID")
    add("--mode", choices=PERMISSION_MODES, help="default: the configuration's, else ask")
    add("--system", metavar="TEXT|@FILE", help="system prompt")
    add("--max-turns", type=int, metavar="N", help=f"default: {bounds.MAX_TURNS_DEFAULT}")
    add("--max-tokens", type=int, metavar="N", help="of one answer of the model")
    add("--max-total-tokens", type=int, metavar="N", help="of all model calls of the session")
    add("--max-cost", type=float, metavar="USD", help="of all model calls of the session")
    env_arguments(parser)
    add("--idle-timeout", type=float, dest="idle_timeout_s", metavar="S", help="0: never sleep")
    add("--mem-limit", type=int, metavar="MB", help="memory of the whole process tree")
    add("--max-processes", type=int, metavar="N", help="of the whole process tree")
    add("--cpu-limit", type=float, metavar="S", help="CPU seconds of the whole process tree")
    add(
        "--programmatic-tools",
        action="store_true",
        help="let the model call tools from code that runs at the API",
    )
    add("--tcp", action="store_true", help="listen on 127.0.0.1, too, with a token (see url)")
    add("--ring", type=int, dest="ring_bytes", metavar="BYTES", help="size of the event buffer")
    add("--parent", metavar="ID", help="a live session that this one belongs to, and ends with")
    add("--client-id", metavar="KEY", help="repeating a create with this key makes nothing new")


def env_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="K[=V]",
        help="a variable of the session, repeatable; K alone takes the value it has here",
    )
    parser.add_argument(
        "--env-file", type=Path, metavar="FILE", help="default: .env beside the configuration"
    )


async def create_session(context: Context, sidecar: Sidecar) -> Session:
    """The session that the flags describe. Raises `UsageError` and what `create` raises."""
    args = vars(context.args)
    names = CreateParams.__annotations__.keys() & args.keys()
    params = CreateParams(**{name: args[name] for name in names if args[name] is not None})
    if (system := params.get("system", "")).startswith("@"):
        try:
            params["system"] = Path(system[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {system[1:]}: {error}", "check --system") from error
    if limits := _limits(args):
        params["limits"] = limits
    env_file = find_env_file(args["env_file"], places(os.environ).config.parent)
    params["env"] = session_env(args["env"], env_file, os.environ)
    return await sidecar.create(args["cwd"], **params)


def _limits(args: dict[str, Any]) -> dict[str, float]:
    megabytes = args["mem_limit"]
    limits = {
        "memory_bytes": None if megabytes is None else megabytes * bounds.MIB,
        "processes": args["max_processes"],
        "cpu_s": args["cpu_limit"],
        "tokens": args["max_total_tokens"],
        "cost_usd": args["max_cost"],
    }
    return {name: value for name, value in limits.items() if value is not None}


async def show_notices(context: Context, session: Session) -> None:
    """What a new session wants known: that its model is a script, that nothing is asked first."""
    async for event in session.recorded():
        if event["type"] == NOTICE:
            context.out.note(f"{event['data']['severity']}: {event['data']['title']}", YELLOW)
