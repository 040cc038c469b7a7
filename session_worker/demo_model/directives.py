"""Orders to the demo model itself, written into a prompt: `!slow 20tps`, `!overloaded 2` and so on.

Used by `intents`; pure. They show how an agent deals with what a real model or network does.
"""

from __future__ import annotations

import re
from dataclasses import replace

from session_worker.demo_model.reply import (
    ApiError,
    Fault,
    FaultKind,
    Json,
    Reply,
    Streamed,
    text,
    thinking,
)
from session_worker.demo_model.wire import split

Directives = dict[str, str]
"""Name → value, empty if none was written."""

VALUES = {
    "slow": r"\d+(?=\s*tps)",
    "overloaded": r"\d+",
    "429": r"(?<=retry-after=)\d+",
    "big": r"\d+k?",
    "cut": r"\d+",
    "stall": r"\d+",
    "max_tokens": "",
    "refusal": "",
    "badjson": "",
    "loop": "",
    "thinking": "",
    "code": "",
}
"""`overloaded`, `cut` and `stall` take the number of attempts that fail, 1 if not given. `code`
has the tools called by code, where the session offers that."""

DIRECTIVE = re.compile(
    rf"(?<![\w!])!(?P<name>{'|'.join(VALUES)})(?!\w)"
    r"(?P<value>[ \t]+(?:retry-after=\d+|\d+(?:[ \t]*tps|k)?)(?!\w))?"
)

SLOW_TPS = 20.0
BIG_CHARS_MAX = 2_000_000
"""More than any context window; each delta of it is in memory until the reply is sent."""
OVERLOADED = "Overloaded"


def take_directives(prompt: str) -> tuple[str, Directives]:
    """The prompt without its directives, and the directives."""
    found: Directives = {}

    def take(match: re.Match[str]) -> str:
        value = re.search(VALUES[match["name"]], match["value"] or "")
        found[match["name"]] = value[0] if value else ""
        return ""

    return DIRECTIVE.sub(take, prompt).strip(), found


def failure(directives: Directives, attempt: int) -> ApiError | None:
    """What refuses this attempt before any stream."""
    if "429" in directives and attempt == 1:
        later = {"retry-after": directives["429"] or "1"}
        return ApiError(429, "Number of requests has exceeded your rate limit", later)
    if _fails(directives, "overloaded", attempt) and attempt % 2:
        return ApiError(529, OVERLOADED)
    return None


def _fails(directives: Directives, name: str, attempt: int) -> bool:
    return name in directives and attempt <= int(directives[name] or 1)


def replaced(directives: Directives, tool: str | None) -> Reply | None:
    """A reply that comes instead of what the prompt asks for; `tool` is one that is offered."""
    if "refusal" in directives:
        details = {"type": "refusal", "category": "general_harms", "explanation": None}
        partial = text("I was about to say something that")
        return Reply([partial], "refusal", deltas=({"stop_details": details},))
    if "badjson" in directives and tool:
        call: Json = {"type": "tool_use", "name": tool, "input": {}}
        broken = {"type": "input_json_delta", "partial_json": '{"command": "echo brok'}
        return Reply([Streamed(call, [broken])])
    if "big" in directives:
        return Reply([text(_big(directives["big"] or "200k"))])
    return None


def _big(size: str) -> str:
    chars = min(int(size.rstrip("k")) * (1000 if size.endswith("k") else 1), BIG_CHARS_MAX)
    line = "The demo model was asked for a lot of text, so here is one more line of it.\n"
    return (line * (chars // len(line) + 1))[: chars - 1] + "."


def decorated(reply: Reply, directives: Directives, attempt: int) -> Reply:
    """The reply changed in what it holds or in how it travels."""
    if "max_tokens" in directives:
        *whole, last = reply.content
        reply = replace(reply, content=[*whole, _half(last)], stop_reason="max_tokens")
    if "thinking" in directives:
        thought = thinking("A script does not think; this block only shows how thinking arrives.")
        reply = replace(reply, content=[thought, *reply.content])
    if "slow" in directives:
        reply = replace(reply, tps=float(directives["slow"] or SLOW_TPS))
    fault = _fault(directives, attempt)
    return replace(reply, fault=Fault(fault)) if fault else reply


def _half(block: Json | Streamed) -> Streamed:
    whole = block if isinstance(block, Streamed) else split(block)
    return Streamed(whole.start, whole.deltas[: (len(whole.deltas) + 1) // 2])


def _fault(directives: Directives, attempt: int) -> FaultKind | None:
    kinds: tuple[FaultKind, ...] = ("overloaded", "cut", "stall")
    return next((kind for kind in kinds if _fails(directives, kind, attempt)), None)
