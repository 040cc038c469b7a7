"""The part of a settings file that says what agents may do: the same for a user and a project.

`[permissions]` with the lists `deny`, `ask` and `allow`, and `[[hooks]]`. Read by the daemon from
`config.toml`, and by a worker from the project it works in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

from sidecar.protocol.hooks import Hook, parse_hooks
from sidecar.protocol.rules import Rule, parse_rule

LISTS = ("deny", "ask", "allow")


@dataclass(frozen=True)
class Rules:
    """The rules of one layer. `source` is what people are told of where a rule stands."""

    source: str
    deny: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    allow: tuple[Rule, ...] = ()

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Rules:
        lists = {name: tuple(parse_rule(text) for text in wire[name]) for name in LISTS}
        return cls(wire["source"], **lists)

    def to_wire(self) -> dict[str, Any]:
        lists = {name: [str(rule) for rule in getattr(self, name)] for name in LISTS}
        return {"source": self.source, **lists}


def parse_rules(table: Mapping[str, Any], source: str, text: str = "") -> Rules:
    """The lists of a `[permissions]` table. Raises ValueError, with the line in the file's `text`
    where the rule stands."""
    return Rules(source, *(_parse_list(table, name, text) for name in LISTS))


def parse_policy(
    raw: Mapping[str, Any], source: str, text: str, settings: Collection[str] = ()
) -> tuple[Rules, tuple[Hook, ...]]:
    """Rules and hooks of a whole file, whose `[permissions]` may hold `settings`, too. Raises
    ValueError: a list of denies must not be lost to a misspelling."""
    table: Any = raw.get("permissions", {})
    if not isinstance(table, dict):
        raise ValueError("permissions is a table: [permissions]")
    given, known = cast("dict[str, Any]", table), {*LISTS, *settings}
    if unknown := sorted(set(given) - known):
        raise ValueError(f"permissions has no {unknown[0]!r} here, only {', '.join(sorted(known))}")
    return parse_rules(given, source, text), parse_hooks(raw.get("hooks", []), source)


def _parse_list(table: Mapping[str, Any], name: str, text: str) -> tuple[Rule, ...]:
    given: Any = table.get(name, [])
    if not isinstance(given, list):
        raise ValueError(f'permissions.{name} is a list of rules, such as ["bash(git status *)"]')
    rules: list[Rule] = []
    for rule in cast("list[Any]", given):
        try:
            if not isinstance(rule, str):
                raise ValueError(f"a rule is a text, not {rule!r}")
            rules.append(parse_rule(rule))
        except ValueError as error:
            where = _line_of(rule, text)
            raise ValueError(f"{where}permissions.{name}: {error}") from None
    return tuple(rules)


def _line_of(rule: object, text: str) -> str:
    """Where it stands; the parser does not tell. Nothing for one that is written with escapes."""
    for number, line in enumerate(text.splitlines(), 1):
        if f'"{rule}"' in line or f"'{rule}'" in line:
            return f"line {number}: "
    return ""
