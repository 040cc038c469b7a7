"""ACP-C `session/update` bodies, the `data` of `update` events (acp.md §2.4). Pure."""

from __future__ import annotations

from typing import Any

Update = dict[str, Any]


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def chunk(kind: str, text: str, message_id: str) -> Update:
    """`kind` is `user_message_chunk`, `agent_message_chunk` or `agent_thought_chunk`."""
    return {"sessionUpdate": kind, "content": text_block(text), "messageId": message_id}


def tool_call(call: dict[str, Any], kind: str) -> Update:
    """Announced as the model asked for it; the title follows once the input is understood."""
    return {
        "sessionUpdate": "tool_call",
        "toolCallId": call["id"],
        "title": call["name"],
        "name": call["name"],
        "kind": kind,
        "status": "pending",
        "rawInput": call["input"],
    }


def tool_call_started(call_id: str, title: str, kind: str) -> Update:
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": call_id,
        "title": title,
        "kind": kind,
        "status": "in_progress",
    }


def tool_call_ended(call_id: str, text: str, failed: bool, raw_output: dict[str, Any]) -> Update:
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": call_id,
        "status": "failed" if failed else "completed",
        "content": [{"type": "content", "content": text_block(text)}],
        "rawOutput": raw_output,
    }


def usage(used: int, size: int, cost_usd: float | None) -> Update:
    """Context tokens now, the model's window, and what the session has cost, if that is known."""
    update: Update = {"sessionUpdate": "usage_update", "used": used, "size": size}
    if cost_usd is not None:
        update["cost"] = {"amount": cost_usd, "currency": "USD"}
    return update
