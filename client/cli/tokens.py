"""`sidecarctl context`, `usage` and `compact`: what the model calls of a session hold and cost."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from client.cli import exit_codes
from client.cli.context import Command, Context, id_argument
from client.cli.output import RED, YELLOW

_CONTEXT = ("MODEL", "CONTEXT", "WINDOW", "USED", "PREFIX", "MESSAGES", "KEPT-OUT", "CALLS", "COST")
_CALLS = (
    *("TURN", "TRY", "TOTAL", "USED", "PREFIX", "MESSAGES", "KEPT-OUT"),
    *("FRESH", "CACHED", "WRITTEN", "OUTPUT", "MS", "COST", "STOP"),
)
_USAGE = ("ID", "NAME", "STATE", "IN", "CACHED", "WRITTEN", "OUT", "COST", "CONTEXT", "USED")
_SHORT_ID = 8
_COMPACTION = "compaction"
"""`stop_reason` of the call for a summary, which says nothing of the context it made smaller."""
_UNKNOWN = "-"


async def _context(context: Context) -> int:
    async with context.connect() as sidecar:
        filled = await (await sidecar.session(context.args.id)).context()
    if context.out.format != "table":
        context.out.value(filled)
        return exit_codes.OK
    calls: list[dict[str, Any]] = filled["calls"]
    context.out.table(_CONTEXT, [_summary(filled, calls)])
    if context.args.per_call:
        context.out.data("\n")
        context.out.table(_CALLS, map(_call, calls))
    return exit_codes.OK


async def _usage(context: Context) -> int:
    """Asks the daemon only: a sleeping session sleeps on."""
    args, out = context.args, context.out
    async with context.connect() as sidecar:
        if args.id is None:
            asked = await sidecar.statuses(all=args.all)
        else:
            asked = [await sidecar.status(args.id)]
    used = [
        {name: status[name] for name in ("session_id", "name", "state", "model", "usage")}
        for status in asked
    ]
    if out.format == "table":
        out.table(_USAGE, map(_used, used))
    elif out.format == "json" and args.id is None:
        out.value({"sessions": used})
    else:
        for each in used:
            out.value(each)
    return exit_codes.OK


async def _compact(context: Context) -> int:
    async with context.connect() as sidecar:
        done = await (await sidecar.session(context.args.id)).compact(context.args.focus)
    result: dict[str, Any] = done["result"]
    if context.out.format != "table":
        context.out.value(done)
    elif error := result["error"]:
        context.out.note(f"{error['type']}: {error['message']}", RED)
    elif result["stop_reason"] != "final_answer":
        context.out.note(result["stop_reason"], YELLOW)
    else:
        context.out.data(f"{result['final_text']}\n")
    return exit_codes.of_result(result)


def _summary(filled: dict[str, Any], calls: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    total, window = filled["context_tokens"], filled["context_window"]
    prefixes = [call["prefix_tokens"] for call in calls if call["stop_reason"] != _COMPACTION]
    costs = [call["cost_usd"] for call in calls]
    return (
        filled["model"],
        _count(total),
        _count(window),
        _percent(total, window),
        _count(prefixes[-1] if prefixes else None),
        _count(max(0, total - prefixes[-1]) if prefixes else None),
        _count(filled["kept_out"]),
        str(len(calls)),
        _dollars(None if None in costs else sum(costs)),
    )


def _call(call: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(call["turn"]),
        str(call["attempt"]),
        _count(call["total_in"]),
        _percent(call["total_in"], call["window"]),
        _count(call["prefix_tokens"]),
        _count(call["message_tokens"]),
        _count(call.get("kept_out", 0)),
        _count(call["fresh"]),
        _count(call["cache_read"]),
        _count(call["cache_write_5m"] + call["cache_write_1h"]),
        _count(call["output"]),
        f"{call['ms']:.0f}",
        _dollars(call["cost_usd"]),
        call["stop_reason"] or "discarded",
    )


def _used(status: dict[str, Any]) -> tuple[str, ...]:
    usage: dict[str, Any] = status["usage"] or {}
    held, window = usage.get("context_tokens"), usage.get("context_window")
    return (
        status["session_id"][:_SHORT_ID],
        status["name"],
        status["state"],
        _count(usage.get("input_tokens")),
        _count(usage.get("cache_read_tokens")),
        _count(usage.get("cache_write_tokens")),
        _count(usage.get("output_tokens")),
        _dollars(usage.get("cost_usd")),
        _count(held),
        _percent(held, window),
    )


def _count(tokens: int | None) -> str:
    return _UNKNOWN if tokens is None else f"{tokens:,}"


def _percent(part: int | None, whole: int | None) -> str:
    return _UNKNOWN if part is None or not whole else f"{100 * part / whole:.0f}%"


def _dollars(cost: float | None) -> str:
    """Unknown is not nothing."""
    return _UNKNOWN if cost is None else f"${cost:.4f}"


def _context_arguments(parser: argparse.ArgumentParser) -> None:
    id_argument(parser)
    parser.add_argument("--per-call", action="store_true", help="one line for each model call")


def _usage_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("id", nargs="?", metavar="ID", help="default: every live session")
    add("-a", "--all", action="store_true", help="ended sessions too")


def _compact_arguments(parser: argparse.ArgumentParser) -> None:
    id_argument(parser)
    parser.add_argument("--focus", default="", metavar="TEXT", help="what the summary must keep")


COMMANDS = {
    "context": Command("what fills the model's context", _context, _context_arguments),
    "usage": Command("tokens and cost of sessions", _usage, _usage_arguments),
    "compact": Command(
        "put a summary in the place of the older messages", _compact, _compact_arguments
    ),
}
