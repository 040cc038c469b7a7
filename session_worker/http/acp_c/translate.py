"""Events as one ACP-C client is shown them: `session/update` bodies (acp.md §2.4). Pure.

Protocol version 1 has no words for some of what happens. Then something any client can show is
said, and `_meta` tells those who know us exactly:

- An answer that broke off and is made anew: an `agent_thought_chunk` that says so, with
  `sidecar/discarded`, the messageId of what does not count.
- Events that fell out of the ring before they were read: an empty `session_info_update` with
  `sidecar/gap`. Its stream ends there.
- A notice goes as such to clients that take notices. To others only errors are told, as a message
  of the agent; infos and warnings are advice, and dropped.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from session_worker import updates
from session_worker.http.acp_c import jsonrpc
from session_worker.http.acp_c.jsonrpc import Json
from session_worker.project.tagged import one_line
from session_worker.updates import Update
from sidecar.protocol import events

TITLE_CHARS = 80
"""Of a session's title: a line in a list."""
OUTPUT_SHOWN_CHARS = 4 * 1024
"""Of the live output of a running tool: each update repeats all that is shown of it."""


def session_update(session_id: str, update: Update, seq: int | None = None) -> Json:
    params: Json = {"sessionId": session_id, "update": update}
    if seq is not None:
        params["_meta"] = {"sidecar/seq": seq}
    return jsonrpc.notification("session/update", params)


def title(prompt: str) -> str:
    return one_line(prompt[: 4 * TITLE_CHARS])[:TITLE_CHARS]


def titled(prompt: str) -> Update:
    return {"sessionUpdate": "session_info_update", "title": title(prompt)}


def gap(first: int, last: int) -> Update:
    meta = {"sidecar/gap": {"from": first, "to": last}}
    return {"sessionUpdate": "session_info_update", "_meta": meta}


class View:
    """Turns a session's envelopes, in order, into what one client is to see of them."""

    def __init__(self, *, notices: bool, own_runs: Container[str | None], titled: bool) -> None:
        """`own_runs`: those whose prompts the client sent itself, which it does not get back."""
        self.notices = notices
        self._own_runs = own_runs
        self._titled = titled
        self._message_id: str | None = None
        """Of the message that is being shown and may still break off."""
        self._outputs: dict[str, str] = {}

    def look_back(self, envelopes: Iterable[dict[str, Any]]) -> None:
        """Go on behind these, which were shown before."""
        self._message_id, self._outputs = None, {}
        for envelope in envelopes:
            self.updates(envelope)

    def updates(self, envelope: dict[str, Any]) -> list[Update]:
        data = envelope["data"]
        match envelope["type"]:
            case _ if not data:
                return []  # cut down to nothing: it was too large for the ring
            case events.UPDATE:
                return self._update(data, envelope["run_id"])
            case events.RETRY if data.get("discard"):
                return self._take_back()
            case events.RESTARTED:
                return self._take_back()
            case events.NOTICE:
                return self._notice(data, envelope["seq"])
            case events.TOOL_OUTPUT:
                return self._output(**data)
            case events.API_CALL if data["stop_reason"] in (None, "max_tokens"):
                pass  # a call that was cut off at max_tokens is made again, with more room
            case events.API_CALL | events.RUN_FINISHED:
                self._message_id = None
            case _:
                pass
        return []

    def _update(self, update: Update, run_id: str | None) -> list[Update]:
        match update:
            case {"sessionUpdate": "user_message_chunk", "content": content}:
                shown = [] if run_id in self._own_runs else [update]
                if not self._titled and (text := content.get("text")):
                    self._titled = True
                    shown.append(titled(text))
                return shown
            case {"sessionUpdate": "agent_message_chunk" | "agent_thought_chunk"}:
                self._message_id = update.get("messageId")
            case {"sessionUpdate": "tool_call_update", "status": "completed" | "failed"}:
                self._outputs.pop(update["toolCallId"], None)
            case _:
                pass
        return [update]

    def _take_back(self) -> list[Update]:
        message_id, self._message_id = self._message_id, None
        if message_id is None:
            return []
        text = "The answer broke off and is made anew; what was shown of it does not count."
        update = updates.chunk("agent_thought_chunk", text, f"discarded-{message_id}")
        return [{**update, "_meta": {"sidecar/discarded": message_id}}]

    def _notice(self, data: dict[str, Any], seq: int) -> list[Update]:
        if self.notices:
            return [{"sessionUpdate": "notice", **data}]
        if data.get("severity") != "error":
            return []
        update = updates.chunk("agent_message_chunk", data["title"], f"notice-{seq}")
        return [{**update, "_meta": {"sidecar/notice": data["severity"]}}]

    def _output(self, tool_call_id: str, text: str) -> list[Update]:
        shown = (self._outputs.get(tool_call_id, "") + text)[-OUTPUT_SHOWN_CHARS:]
        self._outputs[tool_call_id] = shown
        content = [{"type": "content", "content": updates.text_block(shown)}]
        update = {"sessionUpdate": "tool_call_update", "toolCallId": tool_call_id}
        return [{**update, "content": content}]
