"""`sidecarctl top`: what live sessions use, whole process trees, again and again."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from client.cli import exit_codes
from client.cli.context import Command, Context

_HEADER = ("ID", "NAME", "STATE", "PROCS", "CPU%", "MEM", "CPU_S", "CONTEXT", "TOKENS")
_CLEAR = "\x1b[H\x1b[2J"
_MIB = 1024 * 1024


async def _top(context: Context) -> int:
    """One screen a period on a terminal, else one table."""
    lasting = sys.stdout.isatty() and context.out.format == "table" and not context.args.once
    async with context.connect(start=False) as sidecar:
        while True:
            sessions = sorted(await sidecar.statuses(), key=_load, reverse=True)
            if context.out.format != "table":
                context.out.value({"sessions": sessions})
                return exit_codes.OK
            if lasting:
                sys.stdout.write(_CLEAR)
            context.out.table(_HEADER, map(_row, sessions))
            if not lasting:
                return exit_codes.OK
            await asyncio.sleep(context.args.period)


def _load(status: dict[str, Any]) -> float:
    used: dict[str, Any] = status["resources"] or {}
    return used.get("cpu_percent", 0.0)


def _row(status: dict[str, Any]) -> tuple[str, ...]:
    used: dict[str, Any] = status["resources"] or {}
    usage: dict[str, Any] = status["usage"] or {}
    memory = used.get("pss_bytes") or used.get("rss_bytes")
    tokens = sum(usage.get(key, 0) for key in ("input_tokens", "output_tokens"))
    return (
        status["session_id"][:8],
        status["name"],
        status["state"],
        str(used.get("processes", "-")),
        str(used.get("cpu_percent", "-")),
        f"{memory / _MIB:.0f}M" if memory else "-",
        str(used.get("cpu_s", "-")),
        str(usage.get("context_tokens", "-")),
        str(tokens),
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="one table, also on a terminal")
    parser.add_argument(
        "--period", type=float, default=2.0, metavar="S", help="default: %(default)s"
    )


COMMANDS = {"top": Command("what live sessions use", _top, _arguments, formats=("table", "json"))}
