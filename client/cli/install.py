"""`sidecarctl daemon install` and `uninstall`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from client.cli import exit_codes
from client.cli.context import Command, Context
from client.launch import daemon_command
from sidecar.protocol.paths import ensure_private_dir, places

if TYPE_CHECKING:
    from client.service import Service


async def _install(context: Context) -> int:
    from client import service

    wanted = _of_this_platform()
    if context.args.print:
        for path, text in wanted.files.items():
            context.out.note(f"# {path}")
            context.out.data(text)
        return exit_codes.OK
    ensure_private_dir(places(os.environ).state)  # launchd opens the log before the daemon runs
    service.install(wanted, lambda line: context.out.data(f"{line}\n"))
    if sys.platform != "darwin":
        context.out.note("to keep it while you are logged out: loginctl enable-linger")
    return exit_codes.OK


async def _uninstall(context: Context) -> int:
    from client import service

    service.uninstall(_of_this_platform(), lambda line: context.out.data(f"{line}\n"))
    return exit_codes.OK


def _of_this_platform() -> Service:
    from client import service  # whoever does not install pays for no plistlib

    make = service.launchd if sys.platform == "darwin" else service.systemd
    stop = [sys.executable, "-P", "-m", "client.cli", "daemon", "stop"]
    return make(daemon_command(), stop, os.environ)


def _install_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--print", action="store_true", help="only show what would be written")


COMMANDS = {
    "daemon install": Command(
        "have systemd or launchd run the daemon",
        _install,
        _install_arguments,
        formats=("table",),
    ),
    "daemon uninstall": Command("undo daemon install", _uninstall, formats=("table",)),
}
