"""Bash commands: each part on its own, and what the whole may hide."""

from __future__ import annotations

import os.path
import re

from session_worker.permissions import readonly
from session_worker.permissions.files import access_finding, places
from session_worker.permissions.findings import Case, Finding
from session_worker.permissions.invariants import (
    FREE_DEVICES,
    arguments,
    catastrophic,
    murky_catastrophe,
)
from session_worker.permissions.match import Match, command_match, murky_match
from session_worker.permissions.path_rules import glob_match, path_match
from session_worker.permissions.paths import canonical, inside
from session_worker.permissions.policy import Decision
from session_worker.permissions.programs import base_name
from session_worker.permissions.propose import command_rule
from session_worker.permissions.script import Command, Script
from session_worker.permissions.shell import analyse
from session_worker.permissions.variables import sets_steering, steers
from session_worker.permissions.words import Kind, Word
from sidecar.protocol.rules import Rule, is_whole

_WRITERS = frozenset(
    {"chmod", "chown", "cp", "dd", "install", "ln", "mkdir", "mv", "rm", "rmdir", "rsync", "sed",
     "shred", "tee", "touch", "truncate", "unlink"}
)  # fmt: skip
"""Programs for which an edit rule is about the files they name."""
_SCRIPTED = frozenset({"awk", "grep", "jq", "perl", "sed"})
"""Programs whose first argument may look like a path and is none."""


def command_findings(case: Case) -> list[Finding]:
    """All parts of the request's command, at any depth, in the order they were found."""
    text = case.request.command or ""
    cwd = str(case.request.cwd or case.policy.roots[0])
    script = case.script or analyse(text, cwd, case.policy.home, case.realpath)
    case.script = script
    found = [_Part(case, script, command).finding() for command in script.commands]
    found += [access_finding(case, access) for access in script.accesses]
    found += [_murky(case, script, murky) for murky in script.murky]
    if script.opaque:
        found.append(_opaque(case, script, text))
    parts = [finding for finding in found if finding]
    return parts or [_nothing(case, text)]


def _opaque(case: Case, script: Script, text: str) -> Finding | None:
    """The command as a whole, where its parts may not be all of it."""
    reason = f"The command cannot be read for certain: {script.opaque[0]}"

    def otherwise() -> Finding:
        if case.policy.mode == "bypass":
            return case.by_mode(text, Decision.ALLOW)
        return Finding(text, Decision.ASK, "opaque", reason)

    return case.settle(text, _whole, reads=False, protected=None, otherwise=otherwise)


def _murky(case: Case, script: Script, text: str) -> Finding | None:
    """Text that nobody could read: it can be refused for what seems to be in it."""
    if why := murky_catastrophe(text, case.policy.home):
        return Finding(text, Decision.DENY, "catastrophic", f"Denied in every mode: {why}")

    def matches(rule: Rule, _: bool) -> Match:
        return murky_match(rule, text) if rule.family in ("*", "bash") else Match.NO

    protected = case.guard.murky(text)
    return case.settle(
        text, matches, reads=False, protected=protected, otherwise=lambda: None, grants=False
    )


def _nothing(case: Case, text: str) -> Finding:
    """An empty command, a comment, `2>/dev/null`."""
    nothing = Finding(text, Decision.ALLOW, "builtin", "It does nothing")
    found = case.settle(text, _whole, reads=True, protected=None, otherwise=lambda: nothing)
    return found or nothing


def _whole(rule: Rule, _: bool) -> Match:
    return Match.YES if rule.family in ("*", "bash") and is_whole(rule) else Match.NO


class _Part:
    """One simple command of a script."""

    def __init__(self, case: Case, script: Script, command: Command) -> None:
        self.case, self.script, self.command = case, script, command
        self.core = command.core
        self.bases = command.cwds or (str(case.policy.roots[0]),)
        self.reading = readonly.reading(command.core, command.names) if command.core else None
        programs = {word.text for word in (*command.words[:1], *command.core[:1])}
        self.steered = (
            any(map(steers, command.names))
            or sets_steering(command.core)
            or not script.functions.isdisjoint(programs)
        )

    def finding(self) -> Finding | None:
        case, command, core = self.case, self.command, self.core
        text, values = command.text, self.script.values
        protected = None
        if core:
            known = command.cwds or ()
            ruling = catastrophic(core, known, values, case.policy, case.realpath)
            if ruling and ruling[0] is Decision.DENY:
                reason = f"Denied in every mode: {ruling[1]}"
                return Finding(text, Decision.DENY, "catastrophic", reason)
            protected = ruling and ruling[1]
            seen = command.hidden and not command.nested  # by the launcher it is behind
            if not protected and self.reading is None and not seen:
                protected = case.guard.command(core, known, values)
        return case.settle(
            text,
            self.matches,
            reads=self.is_builtin(),
            protected=protected,
            otherwise=self.by_mode,
            grants=not command.hidden,
        )

    def by_mode(self) -> Finding:
        case, text, mode = self.case, self.command.text, self.case.policy.mode
        if self.is_builtin():
            return Finding(text, Decision.ALLOW, "builtin", "It only reads")
        proposal = None
        if self.core and not self.steered:
            proposal = command_rule(self.core, exact=readonly.is_reader(self.core))
        if mode == "auto" and self.leaves():
            reason = f"It names something outside the session's directories: {text}"
            return Finding(text, Decision.ASK, "outside", reason, proposal)
        if mode in ("auto", "bypass"):
            return case.by_mode(text, Decision.ALLOW)
        return case.by_mode(text, Decision.ASK, proposal)

    # --- rules -------------------------------------------------------------------------

    def matches(self, rule: Rule, loose: bool) -> Match:
        """Bash rules by words; for refusing, path rules by the files that are named."""
        command = self.command
        if rule.family in ("*", "bash"):
            if not loose and not is_whole(rule) and self.steered:
                return Match.NO
            if not command.words:
                return Match.YES if is_whole(rule) else Match.NO
            written = (command.words, command.core)
            return max(command_match(rule, words, loose=loose) for words in written)
        if not loose or not command.words or not self.is_about_files(rule):
            return Match.NO
        return self.file_match(rule)

    def is_about_files(self, rule: Rule) -> bool:
        if rule.family == "edit":
            return self.reading is None and base_name(self.core[0]) in _WRITERS
        return rule.family == "read"

    def file_match(self, rule: Rule) -> Match:
        case, policy = self.case, self.case.policy
        found = Match.NO
        for name in self.named():
            for place in places(case, [name], self.bases):
                if place and path_match(
                    rule, place, policy.roots, policy.home, case.realpath, loose=True
                ):
                    return Match.YES
        for word in self.core[1:]:
            if word.is_glob:
                pattern = "".join(text for _, text in word.pieces)
                found = max(found, *(glob_match(rule, pattern, base) for base in self.bases))
        return found

    def named(self) -> list[str]:
        """What the arguments may name; of git's `HEAD:.env` the file as well."""
        words = [word for word in self.core[1:] if not word.is_glob]
        found = [a.text for a in arguments(words, self.bases, self.script.values) if a.text]
        if base_name(self.core[0]) == "git":
            found += [text.partition(":")[2] for text in found if ":" in text]
        return found

    # --- where it reads ----------------------------------------------------------------

    def is_builtin(self) -> bool:
        """Whether it is of the read-only set, and everything it reads is inside the roots."""
        command, reading = self.command, self.reading
        if command.nested or self.steered:
            return False
        if not command.words:
            return True
        if reading is None or reading.anywhere:
            return reading is not None
        roots = {str(root) for root in self.case.policy.roots}
        cwds = command.cwds
        if cwds is None or not all(self.is_inside(".", cwd) for cwd in cwds):
            return False
        if reading.git and not (self.case.policy.trusted and roots.issuperset(cwds)):
            return False  # a repository's configuration can have `git status` run its programs
        if reading.deep and self.has_rules_about_files(reading):
            return False
        plain = [word.text for word in reading.paths if word.text not in (None, "-", "/dev/null")]
        prefixes = [_glob_directory(word) for word in reading.globs]
        return all(
            path is not None and self.is_inside(path, cwd)
            for path in (*plain, *prefixes)
            for cwd in cwds
        )

    def is_inside(self, path: str, cwd: str) -> bool:
        real = canonical(path, cwd, self.case.realpath)
        return real is not None and inside(real, self.case.policy.roots)

    def has_rules_about_files(self, reading: readonly.Reading) -> bool:
        """Rules that a search through directories would not keep to."""
        refusing = (*self.case.rules(Decision.DENY), *self.case.rules(Decision.ASK))
        specs = [rule.spec for rule, _ in refusing if rule.family == "read" and rule.spec]
        return any(reading.dotfiles or not re.search(r"(?:^|/)\.[^/]", spec) for spec in specs)

    def leaves(self) -> bool:
        """Whether it starts outside the roots or names something there."""
        if not all(self.is_inside(".", cwd) for cwd in self.command.cwds or ()):
            return True
        words = list(self.core[1:])
        if self.core and base_name(self.core[0]) in _SCRIPTED:
            script = next((word for word in words if not word.raw.startswith("-")), None)
            words = [word for word in words if word is not script]
        for argument in arguments(words, self.bases, self.script.values):
            path = argument.text
            if path.startswith("~"):
                path = str(self.case.policy.home) + path[1:]
            leads_away = path.startswith("/") or ".." in path.split("/")
            if not leads_away or path in FREE_DEVICES:
                continue
            if not all(self.is_inside(path, base) for base in self.bases):
                return True
        return False


def _glob_directory(word: Word) -> str | None:
    """Where the names that fit a pattern are; None if the pattern is for directories, too."""
    fixed = word.pieces[0][1] if word.pieces[0][0] is Kind.TEXT else ""
    rest = "".join(text for _, text in word.pieces)[len(fixed) :]
    return None if "/" in rest else os.path.dirname(fixed) or "."  # noqa: PTH120
