"""Permission rules as text: `family(spec)` or `family`.

Called by the daemon to validate config, and by the worker, which matches. Never decides anything
and knows neither sessions nor files.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

FAMILIES = ("bash", "read", "edit", "web_fetch", "mcp", "task", "*")
"""What a rule may be about, besides the exact name of one tool."""
RULE_CHARS = 1000
"""Of one rule: longer than any command prefix or path somebody writes down."""

_RULE = re.compile(r"(?P<family>\*|[A-Za-z_][A-Za-z0-9_-]*)(?:\((?P<spec>.*)\))?")
_MCP_NAME = re.compile(r"[A-Za-z0-9_*?\[\]!-]+")
_DOMAIN = re.compile(r"domain:(?P<host>[A-Za-z0-9*?.-]+|\[[0-9A-Fa-f:.*?]+\])")
_FOREIGN = {
    "bash": "bash", "read": "read", "edit": "edit", "write": "edit", "multiedit": "edit",
    "webfetch": "web_fetch", "web_fetch": "web_fetch", "mcp": "mcp", "task": "task",
}  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """One rule; `spec` is None where it is about the whole family. `str()` parses back to it."""

    family: str
    spec: str | None = None

    def __str__(self) -> str:
        return self.family if self.spec is None else f"{self.family}({self.spec})"


def parse_rule(text: str) -> Rule:
    """The rule that `text` says. Raises `ValueError` with what is wrong and an example."""
    text = text.strip()
    if len(text) > RULE_CHARS:
        raise ValueError(f"a rule has at most {RULE_CHARS} characters, this one {len(text)}")
    if not text.isprintable():
        raise ValueError(f"{text!r} contains a line break or another control character")
    found = _RULE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no rule; write family(spec), such as bash(git status *)")
    family, spec = found["family"], found["spec"]
    if family.startswith("mcp__"):
        raise ValueError(f"{text!r} would match nothing; write {_example('mcp')}")
    ours = _FOREIGN.get(family.lower())
    if ours and family not in FAMILIES:
        raise ValueError(f"{family!r} is called {ours!r} here: {_example(ours)}")
    if spec is None:
        return Rule(family)
    spec = spec.strip()
    if not spec:
        raise ValueError(
            f"{text!r} says nothing between its brackets; write {family!r} for all of it, "
            f"or {_example(family)}"
        )
    if problem := _problem(family, spec):
        raise ValueError(f"{text!r}: {problem}; write {_example(family)}")
    return Rule(family, spec)


def command_words(spec: str) -> tuple[str, ...]:
    """The patterns of a bash spec, one a word; `git log:*` is `git log *`. Raises `ValueError`."""
    if spec.endswith(":*"):
        spec = spec[:-2] + " *"
    return tuple(shlex.split(spec))


def is_whole(rule: Rule) -> bool:
    """Whether the rule is about all of its family; `bash(*)` is `bash`."""
    return rule.spec is None or (rule.family == "bash" and rule.spec.lstrip(":") == "*")


def domain(spec: str) -> str:
    """The host pattern of a web_fetch spec, in lower case. Raises `ValueError`."""
    found = _DOMAIN.fullmatch(spec)
    if found is None:
        raise ValueError("only a domain can be named, without scheme, port or path")
    return found["host"].lower().rstrip(".")


def _problem(family: str, spec: str) -> str | None:
    if family == "*":
        return "'*' is about everything and takes no brackets"
    if family == "mcp" and not _MCP_NAME.fullmatch(spec):
        return "a tool of an MCP server is named server__tool, in letters, digits, '_' and '-'"
    if family in ("read", "edit") and spec.startswith("!"):
        return "a path cannot be excepted with '!'"
    if family in ("read", "edit") and ".." in spec.split("/"):
        return "paths are compared without '..', so this would match nothing"
    try:
        if family == "bash":
            command_words(spec)
        if family == "web_fetch":
            domain(spec)
    except ValueError as error:
        return str(error).lower()
    return None


def _example(family: str) -> str:
    return {
        "bash": "bash(git status *)",
        "read": "read(**/.env*)",
        "edit": "edit(src/**)",
        "web_fetch": "web_fetch(domain:*.python.org)",
        "mcp": "mcp(github__delete_*)",
        "task": "task(review)",
        "*": "*",
    }.get(family, f"{family}(src/**)")
