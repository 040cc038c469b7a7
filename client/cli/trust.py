"""`sidecarctl trust`: which projects may configure what their sessions do. Needs no daemon."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from client.cli import exit_codes
from client.cli.context import Command, Context
from client.errors import UsageError
from sidecar.protocol.paths import ensure_private_dir, places
from sidecar.protocol.trust import TrustStore


async def _trust(context: Context) -> int:
    args, out = context.args, context.out
    state = places(os.environ).state
    ensure_private_dir(state)
    store = TrustStore(state)
    if args.list:
        return _list(context, store)
    directory = args.directory.absolute()
    if args.remove:
        removed = store.untrust(directory)
        if removed is None:
            out.note(f"{directory} was not trusted")
        return _show(context, removed)
    if not directory.is_dir():
        raise UsageError(f"there is no directory {directory}", "sidecarctl trust DIR")
    return _show(context, store.trust(directory))


def _list(context: Context, store: TrustStore) -> int:
    rows = sorted(store.trusted().items())
    if context.out.format == "table":
        context.out.table(("PATH", "SINCE"), rows)
    else:
        context.out.value({"trusted": [{"path": path, "at": at} for path, at in rows]})
    return exit_codes.OK


def _show(context: Context, path: Path | None) -> int:
    """The directory that was concerned: the git root of the one that was named."""
    if context.out.format != "table":
        context.out.value({"path": None if path is None else str(path)})
    elif path is not None:
        context.out.data(f"{path}\n")
    return exit_codes.OK


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("directory", type=Path, nargs="?", default=Path(), metavar="DIR", help="default: here")
    add("--list", action="store_true", help="the trusted directories")
    add("--remove", action="store_true", help="trust it no longer")


COMMANDS = {
    "trust": Command(
        "let a project's own rules, hooks and MCP servers count in its sessions",
        _trust,
        _arguments,
    )
}
