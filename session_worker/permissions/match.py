"""Whether a rule is about a command, by its words, a fetch, by its host, or a named tool.

Called for each part of a call and each rule. What is not known before it runs may match:
`MAYBE` is enough to ask, never to allow or deny. Files are path_rules.py's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from fnmatch import fnmatchcase
from functools import lru_cache

from session_worker.permissions.programs import base_name
from session_worker.permissions.words import Word
from sidecar.protocol.rules import Rule, command_words, domain

RULES_CACHED = 1024
"""Parsed rules kept: more than all layers of a session have together."""
TEXTS_CACHED = 4
"""Split texts kept, so that each is split once for all rules of one decision."""

_PLAIN_URL = re.compile(
    r"https?://(?P<host>[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[0-9]+)?(?:[/?#].*)?",
    re.IGNORECASE | re.DOTALL,
)
_MURKY_SEPARATORS = re.compile(r"[\s;&|()<>{}`$,]+")


class Match(IntEnum):
    NO = 0
    MAYBE = 1
    YES = 2


@lru_cache(maxsize=RULES_CACHED)
def _patterns(spec: str) -> tuple[str, ...]:
    try:
        return command_words(spec)
    except ValueError:
        return (spec,)


def command_match(rule: Rule, words: Sequence[Word], *, loose: bool) -> Match:
    """A bash rule, word by word; a last `*` is any words or none.

    `loose` is for refusing: `/bin/rm` is `rm`, and what is not known may be what is meant.
    """
    if rule.spec is None:
        return Match.YES
    patterns = _patterns(rule.spec)
    open_end = patterns[-1] == "*"
    fixed = patterns[:-1] if open_end else patterns
    sure = Match.YES
    for at, pattern in enumerate(fixed):
        if at >= len(words):
            return Match.NO
        word = words[at]
        if word.text is None:
            if not word.one:
                return Match.MAYBE
            if pattern != "*":
                sure = Match.MAYBE
        elif not fnmatchcase(word.text, pattern) and not (
            loose and at == 0 and fnmatchcase(base_name(word), pattern)
        ):
            return Match.NO
    surplus = words[len(fixed) :]
    if surplus and not open_end:
        return Match.NO if any(word.one for word in surplus) else Match.MAYBE
    return sure


def murky_match(rule: Rule, text: str) -> Match:
    """A bash rule against text that could not be read: anywhere in it, quotes aside."""
    if rule.spec is None:
        return Match.YES
    patterns = _patterns(rule.spec)
    fixed = patterns[:-1] if patterns[-1] == "*" else patterns
    tokens = murky_tokens(text)
    for start in range(len(tokens) - len(fixed) + 1):
        found = tokens[start : start + len(fixed)]
        names = [found[0].rpartition("/")[2], *found[1:]] if found else []
        if all(map(fnmatchcase, names, fixed)):
            return Match.YES
    return Match.NO


@lru_cache(maxsize=TEXTS_CACHED)
def murky_tokens(text: str) -> tuple[str, ...]:
    for quote in "\\\"'":
        text = text.replace(quote, "")
    return tuple(token for token in _MURKY_SEPARATORS.split(text) if token)


def host(url: str) -> str | None:
    """The host of a URL that every reader takes for the same; None for any other text."""
    found = _PLAIN_URL.fullmatch(url)
    return found["host"].lower().rstrip(".") if found else None


def subject_match(rule: Rule, family: str, subject: str | None, *, loose: bool) -> Match:
    """A rule for a fetch, by host, or for an MCP tool or a task, by name."""
    if rule.spec is None:
        return Match.YES
    if family != "web_fetch":
        return Match.YES if subject and fnmatchcase(subject, rule.spec) else Match.NO
    name = host(subject or "")
    if name is None:
        return Match.MAYBE if loose else Match.NO
    try:
        return Match.YES if fnmatchcase(name, domain(rule.spec)) else Match.NO
    except ValueError:
        return Match.NO
