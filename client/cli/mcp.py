"""`sidecarctl mcp …`: the MCP servers of a session."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import time
from collections.abc import Sequence
from urllib.parse import quote

from client import endpoint
from client.cli import exit_codes
from client.cli.context import Command, Context, id_argument
from client.cli.question import Json
from client.errors import UsageError
from client.session import Session
from sidecar.protocol import bounds

_UNSETTLED = ("pending", "connecting")


async def _ls(context: Context) -> int:
    async with context.connect() as sidecar:
        _show(context, await _servers(await sidecar.session(context.args.id)))
    return exit_codes.OK


async def _test(context: Context) -> int:
    """Waits for those that are starting; OK if all that were meant are connected."""
    args, until = context.args, time.monotonic() + bounds.MCP_TEST_S
    async with context.connect() as sidecar:
        session = await sidecar.session(args.id)
        while True:
            servers = _meant(await _servers(session), args.server)
            if not any(each["state"] in _UNSETTLED for each in servers):
                break
            if time.monotonic() > until:
                break
            await asyncio.sleep(bounds.MCP_TEST_POLL_S)
    _show(context, servers)
    connected = all(each["state"] == "connected" for each in servers)
    return exit_codes.OK if connected else exit_codes.FAILED


async def _restart(context: Context) -> int:
    async with context.connect() as sidecar:
        session = await sidecar.session(context.args.id)
        await _post(session, context.args.server, "restart", {})
    _done(context, [context.args.server])
    return exit_codes.OK


async def _approve(context: Context) -> int:
    """As they are shown: the session refuses if they have changed since."""
    async with context.connect() as sidecar:
        session = await sidecar.session(context.args.id)
        waiting = [
            each
            for each in _meant(await _servers(session), context.args.server)
            if each["approval"] is not None
        ]
        for each in waiting:
            context.out.note(f"{each['name']} will run: {_what(each)}")
            body = {"fingerprint": each["approval"]["fingerprint"]}
            await _post(session, each["name"], "approve", body)
    if not waiting:
        context.out.note("no server waits for an approval")
    _done(context, [each["name"] for each in waiting])
    return exit_codes.OK


async def _servers(session: Session) -> list[Json]:
    path = f"/sessions/{session.id}/mcp"
    return json.loads(await endpoint.fetch(session.info, "GET", path))["servers"]


async def _post(session: Session, server: str, verb: str, body: Json) -> None:
    path = f"/sessions/{session.id}/mcp/{quote(server, safe='')}/{verb}"
    await endpoint.fetch(session.info, "POST", path, body)


def _meant(servers: Sequence[Json], name: str | None) -> list[Json]:
    found = [each for each in servers if name in (None, each["name"])]
    if name is not None and not found:
        raise UsageError(f"the session has no MCP server {name!r}", "sidecarctl mcp ls ID")
    return found


def _show(context: Context, servers: Sequence[Json]) -> None:
    out = context.out
    match out.format:
        case "json":
            out.value({"servers": servers})
        case "jsonl":
            for each in servers:
                out.value(each)
        case _:
            rows = [
                (each["name"], each["state"], str(len(each["tools"])), _remark(each))
                for each in servers
            ]
            out.table(("NAME", "STATE", "TOOLS", ""), rows)


def _remark(server: Json) -> str:
    """What a person may have to do, or why it is not there."""
    if server["approval"] is not None:
        return f"to be approved: {_what(server)}"
    if server["sign_in_at"]:
        return f"sign in at {server['sign_in_at']}"
    last = server["stderr"].splitlines()[-1:]
    return ": ".join([*filter(None, [server["reason"]]), *last, *server["problems"]])


def _what(server: Json) -> str:
    asked = server["approval"]
    words = [asked["url"]] if asked["url"] else [asked["command"], *asked["args"]]
    where = f" in {asked['cwd']}" if asked["cwd"] else ""
    where += ", by the model's provider" if server["transport"] == "connector" else ""
    given = ", ".join([*server["env"], *server["headers"]])
    return shlex.join(words) + where + (f" (gets {given})" if given else "")


def _done(context: Context, names: Sequence[str]) -> None:
    for name in names:
        if context.out.format == "table":
            context.out.data(f"{name}\n")
        else:
            context.out.value({"name": name})


def _one(parser: argparse.ArgumentParser) -> None:
    id_argument(parser)
    parser.add_argument("server", metavar="SERVER")


def _some(parser: argparse.ArgumentParser) -> None:
    id_argument(parser)
    parser.add_argument("server", nargs="?", metavar="SERVER", help="default: all")


COMMANDS = {
    "mcp ls": Command(
        "a session's MCP servers, and what keeps them from working", _ls, id_argument
    ),
    "mcp test": Command("wait for them; fails unless all are connected", _test, _some),
    "mcp restart": Command("start one again", _restart, _one),
    "mcp approve": Command("let those of the project's .mcp.json be started", _approve, _some),
}
