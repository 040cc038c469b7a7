"""The decision about one tool call: allowed, asked about or denied, and why.

Called by the worker before every call of a tool that has a family, and once more by itself to
try out what it proposes. Never raises, never acts; `realpath` is all it knows of the world.
The order is tools-and-ux.md §3.2: invariants, deny rules, hook, ask rules, remembered rejects,
allow rules, mode. Of several parts of a command the strictest decides.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from session_worker.permissions.commands import command_findings
from session_worker.permissions.files import tool_findings
from session_worker.permissions.findings import Case, Finding
from session_worker.permissions.match import Match, subject_match
from session_worker.permissions.policy import Decision, Policy, Request, Rules, Verdict
from session_worker.permissions.propose import PROPOSALS, subject_rule
from sidecar.protocol.rules import Rule, parse_rule

_CONTINUED = "\\\n"
_STRICTNESS = {Decision.ALLOW: 0, Decision.ASK: 1, Decision.DENY: 2}


def decide(
    request: Request,
    policy: Policy,
    hook: Decision | None = None,
    realpath: Callable[[str], str] = os.path.realpath,
) -> Verdict:
    """What is to happen with `request`; `hook` is what a PreToolUse hook said about it."""
    verdict = _decide(request, policy, hook, realpath)
    if request.command and _CONTINUED in request.command:
        # bash joins such lines before it reads words; the parser makes two words of one
        command = request.command.replace(_CONTINUED, "")
        joined = _decide(replace(request, command=command), policy, hook, realpath)
        return max(verdict, joined, key=lambda found: _STRICTNESS[found.decision])
    return verdict


def _decide(
    request: Request,
    policy: Policy,
    hook: Decision | None,
    realpath: Callable[[str], str],
) -> Verdict:
    case = Case(request, policy, hook, cache(realpath))
    findings = _findings(case)
    worst = max(findings, key=lambda finding: _STRICTNESS[finding.decision])
    decision, reason = worst.decision, worst.reason
    if hook and _STRICTNESS[hook] > _STRICTNESS[decision]:
        decision, reason = hook, f"A hook says {hook}"
    parts = tuple(finding.part for finding in findings)
    outside = tuple(map(Path, case.outside))
    verdict = Verdict(decision, reason, parts, (), outside)
    if decision is not Decision.ASK or hook is Decision.ASK:
        return verdict
    return replace(verdict, proposals=_proposals(case, findings))


def _findings(case: Case) -> list[Finding]:
    family = case.request.family
    if family == "bash":
        return command_findings(case)
    if family in ("read", "edit"):
        return tool_findings(case)
    return [_other(case)]


def _other(case: Case) -> Finding:
    """A fetch, an MCP tool, a task. Starting a subagent changes nothing: what it does is judged
    as it does it."""
    request, mode = case.request, case.policy.mode
    starts = request.family == "task"
    text = request.subject or request.tool

    def matches(rule: Rule, loose: bool) -> Match:
        if rule.family not in ("*", request.family, request.tool):
            return Match.NO
        return subject_match(rule, request.family, request.subject, loose=loose)

    proposal = subject_rule(request.family, request.tool, request.subject)
    by_mode = case.by_mode(
        text, Decision.ALLOW if starts or mode == "bypass" else Decision.ASK, proposal
    )
    found = case.settle(
        text, matches, reads=starts or request.read_only, protected=None, otherwise=lambda: by_mode
    )
    return found or by_mode


def _proposals(case: Case, findings: list[Finding]) -> tuple[str, ...]:
    """The rules that would allow the call, tried out; none if they would not, or are too many."""
    texts = [finding.proposal for finding in findings if finding.decision is Decision.ASK]
    unique = tuple(dict.fromkeys(text for text in texts if text))
    if None in texts or not 0 < len(unique) <= PROPOSALS:
        return ()
    remembered = Rules("session", allow=tuple(map(parse_rule, unique)))
    trial = _findings(case.with_layer(remembered))
    allowed = all(finding.decision is Decision.ALLOW for finding in trial)
    return unique if allowed else ()
