"""ACP-C `session/update` bodies, the `data` of `update` events (acp.md §2.4). Pure."""

from __future__ import annotations

from typing import Any

from session_worker.tools.spec import FileChange, ToolResult
from session_worker.tools.truncate import clean
from sidecar.protocol import bounds, server_tools

Update = dict[str, Any]


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def chunk(kind: str, text: str, message_id: str) -> Update:
    """`kind` is `user_message_chunk`, `agent_message_chunk` or `agent_thought_chunk`."""
    return {"sessionUpdate": kind, "content": text_block(text), "messageId": message_id}


def user_content(block: dict[str, Any], message_id: str) -> Update:
    """A part of a prompt, a block of the Messages API."""
    return {
        "sessionUpdate": "user_message_chunk",
        "content": _content(block),
        "messageId": message_id,
    }


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
        **_called_by(call),
    }


def _called_by(call: dict[str, Any]) -> dict[str, Any]:
    """Whose call it is, such as the code's of another call, by whose id clients find that."""
    match call.get("caller"):
        case {"type": str(kind), "tool_id": str(tool_id)}:
            return {"_meta": {"sidecar/caller": {"type": kind, "tool_id": tool_id}}}
        case _:
            return {}


def server_call(call: dict[str, Any]) -> Update | None:
    """A call that the provider runs itself, its input complete; None if it is malformed."""
    match call:
        case {"id": str(call_id), "name": str(name)}:
            return {
                "sessionUpdate": "tool_call",
                "toolCallId": call_id,
                "title": clean(server_tools.title(call))[: bounds.TOOL_TITLE_CHARS],
                "name": name,
                "kind": server_tools.kind(name),
                "status": "in_progress",
                "rawInput": call.get("input"),
                **_called_by(call),
            }
        case _:
            return None


def server_call_ended(result: dict[str, Any]) -> Update | None:
    """Its result, a `…_tool_result` block; None if that names no call."""
    text, failed = server_tools.outcome(result)
    match result:
        case {"tool_use_id": str(call_id)}:
            return {
                "sessionUpdate": "tool_call_update",
                "toolCallId": call_id,
                "status": "failed" if failed else "completed",
                "content": [{"type": "content", "content": text_block(clean(text))}],
                "rawOutput": server_tools.facts(result),
            }
        case _:
            return None


def server_call_given_up(call_id: str, why: str) -> Update:
    """There will be no result."""
    return tool_call_ended(call_id, ToolResult(f"given up: {why}", is_error=True))


def tool_call_started(call_id: str, shown: dict[str, Any]) -> Update:
    """`shown`: title, kind and locations."""
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": call_id,
        **shown,
        "status": "in_progress",
    }


def tool_call_ended(call_id: str, result: ToolResult, kept_out: int | None = None) -> Update:
    """`kept_out`: about so many tokens of it go to code, and not into the model's context."""
    texts = [result.content] if isinstance(result.content, str) else None
    blocks = [text_block(text) for text in texts] if texts else map(_content, result.content)
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": call_id,
        "status": "failed" if result.is_error else "completed",
        "content": [
            *({"type": "content", "content": block} for block in blocks),
            *(diff(change) for change in result.changes),
        ],
        "rawOutput": result.meta,
        **({} if kept_out is None else {"_meta": {"sidecar/kept_out": kept_out}}),
    }


def _content(block: Any) -> dict[str, Any]:
    """A block of the Messages API as a client gets it; what would burst the ring is named only."""
    if block["type"] == "text":
        return text_block(block["text"])
    source = block.get("source", {})
    data, media_type = source.get("data", ""), source.get("media_type", "")
    if block["type"] == "image" and len(data) <= bounds.SHOWN_IMAGE_CHARS:
        return {"type": "image", "data": data, "mimeType": media_type}
    return text_block(f"[{media_type or block['type']}, shown to the model]")


def diff(change: FileChange) -> dict[str, Any]:
    return {
        "type": "diff",
        "path": str(change.path),
        "oldText": change.old,
        "newText": change.new,
    }


def plan(entries: list[dict[str, str]]) -> Update:
    """The whole plan, each time."""
    return {"sessionUpdate": "plan", "entries": entries}


def current_mode(mode: str) -> Update:
    return {"sessionUpdate": "current_mode_update", "currentModeId": mode}


def config_options(options: list[dict[str, Any]]) -> Update:
    """The whole list, each time."""
    return {"sessionUpdate": "config_option_update", "configOptions": options}


def usage(used: int, size: int, cost_usd: float | None) -> Update:
    """Context tokens now, the model's window, and what the session has cost, if that is known."""
    update: Update = {"sessionUpdate": "usage_update", "used": used, "size": size}
    if cost_usd is not None:
        update["cost"] = {"amount": cost_usd, "currency": "USD"}
    return update
