"""What one part of a call comes to: the order in which rules, hook and mode are asked.

Called by commands.py, files.py and verdict.py. The first decisive step wins, except that a deny
rule and plan mode are stricter than everything, and a question about a protected place stands.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from session_worker.permissions.invariants import Guard
from session_worker.permissions.match import Match
from session_worker.permissions.paths import Realpath
from session_worker.permissions.policy import Decision, Policy, Request, Rules
from session_worker.permissions.script import Script
from sidecar.protocol.rules import Rule

TEXT_CHARS = 200
"""Of a part, shown to a person: the whole command is in the request."""

Matcher = Callable[[Rule, bool], Match]
"""Whether a rule is about the part; True asks for refusing, which may be loose."""

PLAN = (
    "The session is in plan mode, so {tool} was not run: it could change something. "
    "Describe what you would do instead."
)


@dataclass(frozen=True)
class Finding:
    """One part's decision. `by` is what decided, such as `builtin` or `rule bash(git push *)`;
    `proposal` is the rule that would allow the part, None if it must not be remembered."""

    text: str
    decision: Decision
    by: str
    reason: str
    proposal: str | None = None

    @property
    def part(self) -> tuple[str, str]:
        text = " ".join(self.text.split())
        text = text if len(text) <= TEXT_CHARS else text[:TEXT_CHARS] + "…"
        return text, f"{self.decision}:{self.by}"


class Case:
    """One call before its judge."""

    def __init__(
        self, request: Request, policy: Policy, hook: Decision | None, realpath: Realpath
    ) -> None:
        self.request, self.policy, self.hook, self.realpath = request, policy, hook, realpath
        self.guard = Guard(policy, realpath)
        self.script: Script | None = None
        """What a command does, once it has been read."""
        self.outside: dict[str, None] = {}
        """Canonical paths beyond the roots, in the order they were found."""

    def with_layer(self, layer: Rules) -> Case:
        """The same call under one more layer; what is known about it stays known."""
        case = copy.copy(self)
        case.policy = replace(self.policy, layers=(layer, *self.policy.layers))
        return case

    def rules(self, kind: Decision) -> Iterator[tuple[Rule, str]]:
        for layer in self.policy.layers:
            lists = {
                Decision.DENY: layer.deny,
                Decision.ASK: layer.ask,
                Decision.ALLOW: layer.allow,
            }
            yield from ((rule, layer.source) for rule in lists[kind])

    def settle(
        self,
        text: str,
        matches: Matcher,
        *,
        reads: bool,
        protected: str | None,
        otherwise: Callable[[], Finding | None],
        grants: bool = True,
    ) -> Finding | None:
        """The part's finding: of the rules if one is decisive, else `otherwise`.

        `reads` says that nothing can change. Without `grants` the part needs no permission and
        can only be refused one.
        """
        mode = self.policy.mode
        found = self.by_rules(text, matches, Decision.DENY, Decision.DENY)
        if found and found.decision is Decision.DENY:
            return found
        if mode == "plan" and not reads and grants:
            reason = PLAN.format(tool=self.request.tool)
            return Finding(text, Decision.DENY, "mode plan", reason)
        if protected:
            return Finding(
                text, Decision.ASK, "protected", f"It is always asked about: {protected}"
            )
        rejected = ((rule, "remembered") for rule in self.policy.rejected)
        found = (
            found
            or self.by_rules(text, matches, Decision.ASK, Decision.ASK)
            or self.by_rules(text, matches, Decision.DENY, Decision.DENY, rejected)
        )
        if found or not grants:
            return found
        if self.hook is Decision.ALLOW:
            return Finding(text, Decision.ALLOW, "hook", "A hook allows it")
        return self.by_rules(text, matches, Decision.ALLOW, Decision.ALLOW) or otherwise()

    def by_rules(
        self,
        text: str,
        matches: Matcher,
        kind: Decision,
        outcome: Decision,
        rules: Iterator[tuple[Rule, str]] | None = None,
    ) -> Finding | None:
        """What the first rule that is about the part says; one that only may be so asks."""
        refusing = kind is not Decision.ALLOW
        perhaps = None
        for rule, source in self.rules(kind) if rules is None else rules:
            match = matches(rule, refusing)
            if match is Match.YES:
                reason = f"The rule {rule} ({source}) says {outcome}: {text[:TEXT_CHARS]}"
                return Finding(text, outcome, f"rule {rule}", reason)
            if match is Match.MAYBE and refusing and perhaps is None:
                reason = f"The rule {rule} ({source}) may be about it: {text[:TEXT_CHARS]}"
                perhaps = Finding(text, Decision.ASK, f"rule {rule}", reason)
        return perhaps

    def by_mode(self, text: str, decision: Decision, proposal: str | None = None) -> Finding:
        mode = self.policy.mode
        reason = f"Mode {mode} allows it"
        if decision is Decision.ASK:
            reason = f"Nothing allows it in mode {mode}: {text[:TEXT_CHARS]}"
        return Finding(text, decision, f"mode {mode}", reason, proposal)
