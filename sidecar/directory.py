"""All sessions the daemon knows, by id, unique prefix or name."""

from __future__ import annotations

import secrets
from collections import Counter
from typing import Any

from sidecar.identity import is_alive
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.session_info import SessionInfo
from sidecar.session import Session

SHORTEST_PREFIX = 4


class Directory:
    """In memory only: the records on disk are the truth."""

    def __init__(self) -> None:
        self._by_id: dict[str, Session] = {}

    def add(self, session: Session) -> None:
        self._by_id[session.record.session_id] = session

    def remove(self, session: Session) -> None:
        self._by_id.pop(session.record.session_id, None)

    def live(self) -> list[Session]:
        return [s for s in self._by_id.values() if s.live]

    def ended(self) -> list[Session]:
        return [s for s in self._by_id.values() if not s.live]

    def get(self, session_id: str | None) -> Session | None:
        return self._by_id.get(session_id or "")

    def children(self, of: Session) -> list[Session]:
        return [s for s in self._by_id.values() if s.record.parent == of.record.session_id]

    def of_worker(self, pid: int) -> str | None:
        """Id of the live session whose worker is the process that has this pid now."""
        for session in self.live():
            worker = session.worker
            if worker is not None and worker.pid == pid and is_alive(worker):
                return session.record.session_id
        return None

    def count_by_state(self) -> dict[str, int]:
        return dict(Counter(s.state for s in self._by_id.values()))

    def by_client_id(self, client_id: str | None) -> Session | None:
        """The session that an earlier create with this key made; a failed one does not count."""
        return next(
            (
                s
                for s in self._by_id.values()
                if client_id is not None
                and s.record.spec.get("client_id") == client_id
                and s.state not in ("failed", "lost")
            ),
            None,
        )

    def find(self, reference: str) -> Session:
        """Raises `SidecarError`: `session_not_found`, or `ambiguous_id` for a shared prefix.

        An exact id wins over a name, a live session's name over an ended one's, and any name
        over a prefix.
        """
        if session := self._by_id.get(reference):
            return session
        named = [s for s in self._by_id.values() if s.record.name == reference]
        for group in ([s for s in named if s.live], named):
            if len(group) == 1:
                return group[0]
        prefixed = [s for s in self._by_id.values() if _matches(s, reference)]
        candidates = named or prefixed
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            raise SidecarError(
                "ambiguous_id",
                f"{len(candidates)} sessions match {reference!r}",
                "give more of the id",
                candidates=[s.record.session_id for s in candidates],
            )
        raise SidecarError(
            "session_not_found",
            f"no session {reference!r}",
            "sidecarctl session ls -a",
        )

    def page(
        self, *, ended: bool, state: str | None, limit: int, cursor: str | None
    ) -> dict[str, Any]:
        """One page, newest first; `cursor` is what the page before gave as `next_cursor`."""
        shown = sorted(
            (s for s in self._by_id.values() if (s.state == state if state else ended or s.live)),
            key=_position,
            reverse=True,
        )
        if cursor is not None:
            shown = [s for s in shown if _position(s) < cursor]
        infos: list[SessionInfo] = [s.info_for_many() for s in shown[:limit]]
        more = len(shown) > limit
        return {"sessions": infos, "next_cursor": _position(shown[limit - 1]) if more else None}

    def require_free(self, name: str, but: Session | None = None) -> None:
        """Raises `SidecarError` (`name_taken`) if another live session has the name."""
        for session in self._by_id.values():
            if session is not but and session.live and session.record.name == name:
                raise SidecarError(
                    "name_taken",
                    f"a live session is already named {name!r}",
                    "choose another name, or destroy that session",
                    session_id=session.record.session_id,
                )

    def free_name(self, wanted: str | None, stem: str) -> str:
        """`wanted` if no live session has it, else (unasked) one made from `stem`."""
        if wanted is not None:
            self.require_free(wanted)
            return wanted
        clean = "".join(c if c.isascii() and c.isalnum() else "-" for c in stem).strip("-")
        return f"{clean[:40] or 'session'}-{secrets.token_hex(3)}"


def _matches(session: Session, reference: str) -> bool:
    plain = reference.replace("-", "")
    return len(plain) >= SHORTEST_PREFIX and session.record.session_id.replace("-", "").startswith(
        plain
    )


def _position(session: Session) -> str:
    return f"{session.record.created_at}/{session.record.session_id}"
