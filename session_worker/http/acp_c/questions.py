"""The session's questions as one client is asked them: `session/request_permission`.

Every client is asked, the first answer counts, and from the others the question is withdrawn. An
answer that is none never means yes: whoever gives one is taken to be unable to answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from session_worker.core import SessionCore
from session_worker.http.acp_c import jsonrpc
from session_worker.http.acp_c.jsonrpc import Answer, Json
from session_worker.permission_request import PermissionRequest
from session_worker.permission_requests import NotPending, UnknownOption

ASK = "session/request_permission"


class Questions:
    """`able` turns false with the first thing that is no answer: from then on the client is not
    asked, and does not count as somebody who is there."""

    def __init__(self, core: SessionCore, mint: Callable[[], str]) -> None:
        """`mint` makes request ids that the connection has not used."""
        self._core = core
        self._mint = mint
        self._asked: dict[str, str] = {}
        self.able = True

    def is_open(self, message_id: Any) -> bool:
        """Whether a question asked under that id waits for its answer."""
        return message_id in self._asked

    def catch_up(self, until: int) -> list[Json]:
        """What the events up to `until`, which nobody read, leave to be asked and withdrawn."""
        waiting = self._core.requests.pending()
        gone = set(self._asked.values()) - {request.request_id for request in waiting}
        late = [request for request in waiting if request.seq <= until]
        return [
            *(message for request_id in gone for message in self.resolved(request_id)),
            *(message for request in late for message in self._ask(request)),
        ]

    def asked(self, seq: int) -> list[Json]:
        """The request for the question of event `seq`; none if that is settled already."""
        waiting = [r for r in self._core.requests.pending() if r.seq == seq]
        return [message for request in waiting for message in self._ask(request)]

    def _ask(self, request: PermissionRequest) -> list[Json]:
        if not self.able or request.request_id in self._asked.values():
            return []
        message_id = self._mint()
        self._asked[message_id] = request.request_id
        params = {
            "sessionId": self._core.spec.session_id,
            "toolCall": request.tool_call,
            "options": request.options,
            "_meta": {
                "sidecar/seq": request.seq,
                "sidecar/request_id": request.request_id,
                "sidecar": request.meta,
            },
        }
        return [jsonrpc.request(message_id, ASK, params)]

    def resolved(self, request_id: str | None) -> list[Json]:
        """What withdraws a question that somebody else has settled."""
        gone = [mine for mine, theirs in self._asked.items() if theirs == request_id]
        for message_id in gone:
            del self._asked[message_id]
        return [jsonrpc.withdrawal(message_id) for message_id in gone]

    def settle(self, answer: Answer) -> None:
        """What is no answer to a question of this client, or comes late, changes nothing."""
        request_id = self._asked.pop(str(answer.id), None)
        if request_id is None:
            return
        try:
            match answer.result:
                case {"outcome": {"outcome": "selected", "optionId": str(option)}}:
                    self._core.requests.answer(request_id, option)
                case {"outcome": {"outcome": "cancelled"}}:
                    self._core.requests.answer(request_id, None)
                case _:
                    self.able = False
        except NotPending:
            pass
        except UnknownOption:
            self.able = False
