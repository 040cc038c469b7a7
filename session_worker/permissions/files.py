"""Reading and editing files, by a file tool or by a redirection of a command."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Sequence

from session_worker.permissions.findings import Case, Finding
from session_worker.permissions.invariants import FREE_DEVICES, is_disk
from session_worker.permissions.match import Match
from session_worker.permissions.path_rules import Place, path_match
from session_worker.permissions.paths import canonical, inside
from session_worker.permissions.policy import Decision
from session_worker.permissions.propose import file_rule
from session_worker.permissions.script import Access
from sidecar.protocol.rules import Rule, is_whole


def tool_findings(case: Case) -> list[Finding]:
    """One for each path; the tools may or may not read `~` as home, so both count."""
    found: list[Finding] = []
    for path in case.request.paths or (".",):
        names = [path]
        if path == "~" or path.startswith("~/"):
            names.append(str(case.policy.home) + path[1:])
        finding = _finding(case, path, case.request.family, places(case, names, _base(case)))
        found += [finding] if finding else []
    return found


def access_finding(case: Case, access: Access) -> Finding | None:
    """Of a redirection; None if nothing is to be said about it."""
    text = access.target.text
    known = places(case, [text], access.cwds) if text is not None and access.cwds else []
    if text is not None and access.cwds is None and text.startswith("/"):
        known = places(case, [text], _base(case))
    if known and all(place and place.canonical in FREE_DEVICES for place in known):
        return None
    disk = next((p.canonical for p in known if p and is_disk(p.canonical)), None)
    if access.family == "edit" and disk:
        return Finding(access.text, Decision.DENY, "catastrophic", f"It would write to {disk}")
    return _finding(case, access.text, access.family, known or [None], access)


def places(case: Case, names: Iterable[str], bases: Iterable[str]) -> list[Place | None]:
    """Where the files are, from each base; None for what cannot be resolved."""
    found: list[Place | None] = []
    for base in bases:
        for name in names:
            real = canonical(name, base, case.realpath)
            called = os.path.normpath(os.path.join(base, name))  # noqa: PTH118
            found.append(Place(real, (called,)) if real else None)
    return found


def _base(case: Case) -> tuple[str]:
    return (str(case.policy.roots[0]),)


def _finding(
    case: Case,
    text: str,
    family: str,
    found: Sequence[Place | None],
    access: Access | None = None,
) -> Finding | None:
    policy = case.policy
    known = [place for place in found if place]
    within_roots = len(known) == len(found) and all(
        inside(p.canonical, policy.roots) for p in known
    )
    if access is None:
        outside = [p.canonical for p in known if not inside(p.canonical, policy.roots)]
        case.outside.update(dict.fromkeys(outside))

    def matches(rule: Rule, loose: bool) -> Match:
        tool = "" if access else case.request.tool
        if access and rule.family == "bash" and is_whole(rule):
            return Match.YES
        if rule.family not in ("*", family, tool):
            return Match.NO
        each = [
            path_match(rule, place, policy.roots, policy.home, case.realpath, loose=loose)
            if place
            else Match.YES if rule.spec is None else Match.MAYBE
            for place in found
        ]  # fmt: skip
        return max(each) if loose else min(each)

    def otherwise() -> Finding:
        if within_roots and family == "read":
            return Finding(text, Decision.ALLOW, "builtin", "It reads inside the roots")
        if policy.mode == "bypass" or (within_roots and policy.mode in ("accept-edits", "auto")):
            return case.by_mode(text, Decision.ALLOW)
        proposal = file_rule(family, known[0].canonical, policy.roots[0]) if known else None
        if within_roots:
            return case.by_mode(text, Decision.ASK, proposal)
        reason = f"It is outside the session's directories: {text}"
        return Finding(text, Decision.ASK, "outside", reason, proposal)

    protected = None
    if family == "edit":
        reasons = (case.guard.place(place.canonical, by_link=True) for place in known)
        protected = next(filter(None, reasons), None)
    return case.settle(
        text,
        matches,
        reads=family == "read",
        protected=protected and f"{text}: {protected}",
        otherwise=otherwise,
        grants=access is None or not access.hidden,
    )
