"""What people have answered once and for all: for this session, or for the project."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from session_worker.transcript import Record, Transcript
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.policy_file import Rules
from sidecar.protocol.remembered import Remembered
from sidecar.protocol.rules import Rule, parse_rule

_NOTE = "permission"
"""Text of the `note` that holds an answer for the session: a later worker must know it, too."""

log = logging.getLogger(__name__)


class Memory:
    """`root` is the project, canonical; its rules are read anew each time, as another session may
    have added some."""

    def __init__(
        self, transcript: Transcript, records: Iterable[Record], store: Remembered, root: Path
    ) -> None:
        self._transcript = transcript
        self._store = store
        self._root = root
        self._allowed: list[str] = []
        self._rejected: list[str] = []
        for record in records:
            if record["kind"] == "note" and record.get("note") == _NOTE:
                self._list(record["allows"]).extend(record["rules"])

    def _list(self, allows: bool) -> list[str]:
        return self._allowed if allows else self._rejected

    def layers(self) -> tuple[Rules, ...]:
        """What is allowed, as layers of rules."""
        try:
            in_project = self._store.projects().get(str(self._root), [])
        except SidecarError as error:
            log.warning("%s", error.message)
            in_project = []
        return (
            Rules("this session", allow=_parsed(self._allowed)),
            Rules("remembered for this project", allow=_parsed(in_project)),
        )

    def rejected(self) -> tuple[Rule, ...]:
        return _parsed(self._rejected)

    def remember(self, rules: Sequence[str], *, allows: bool) -> None:
        """For this session. Raises `TranscriptFull`."""
        self._transcript.append("note", sync=True, note=_NOTE, allows=allows, rules=list(rules))
        self._list(allows).extend(rules)

    def allow_in_project(self, rules: Sequence[str]) -> None:
        """Raises `SidecarError`, OSError."""
        self._store.add(self._root, rules)


def _parsed(texts: Iterable[str]) -> tuple[Rule, ...]:
    """A rule that this version does not know allows nothing."""
    rules: list[Rule] = []
    for text in texts:
        try:
            rules.append(parse_rule(text))
        except ValueError:
            log.warning("a remembered rule is not one: %r", text)
    return tuple(rules)
