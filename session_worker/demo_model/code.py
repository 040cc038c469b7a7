"""Answers through code: the calls of a plan as code at the API makes them (anthropic.md §3.2).

Used by `intents` for the directive `!code`. Nothing runs any code here: a script knows the calls
that its code would make, and says of its output what the results of those were.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from session_worker.demo_model.conversation import Conversation, blocks
from session_worker.demo_model.reply import Json, Reply
from session_worker.demo_model.wire import made_id

PAUSES = "code_execution_20250825"
"""An answer that waits for calls of such code says `pause_turn`, one of a later type `tool_use`."""
EXPIRES_AT = "2099-01-01T00:00:00Z"


def through_code(
    reply: Reply, body: Json, talk: Conversation, planned: Sequence[Sequence[Json]]
) -> Reply:
    """The reply with its calls made by code, where that is offered and may make them.

    `planned` are the calls of all turns of the plan, as far as they are known.
    """
    offered = (str(tool.get("type")) for tool in body.get("tools", ()))
    code_type = next((kind for kind in offered if kind.startswith("code_execution_")), None)
    if code_type is None:
        return reply
    words, *calls = [block for block in reply.content if isinstance(block, dict)]
    by_code = bool(calls) and all(
        code_type in talk.tools[call["name"]].get("allowed_callers", ()) for call in calls
    )
    code, new = _under_way(body), made_id("srvtoolu", json.dumps(body["messages"]))
    caller = {"type": code_type, "tool_id": code or new}
    content = [{**call, "caller": caller} for call in calls] if by_code else [words, *calls]
    if code and not by_code:
        content = [_result(code, talk), *content]
    elif by_code and not code:
        content = [words, _call(new, planned), *content]
    elif not code:
        return reply
    container = body.get("container") or made_id("container", new)
    return replace(
        reply,
        content=content,
        stop_reason="pause_turn" if by_code and code_type == PAUSES else "",
        start={"container": {"id": container, "expires_at": EXPIRES_AT}},
    )


def _under_way(body: Json) -> str | None:
    """The code that has no result yet."""
    said = [block for message in body["messages"] for block in blocks(message["content"])]
    ended = {block.get("tool_use_id") for block in said}
    calls = (b["id"] for b in said if b["type"] == "server_tool_use" and b["id"] not in ended)
    return next(calls, None)


def _call(code_id: str, planned: Sequence[Sequence[Json]]) -> Json:
    lines: list[str] = []
    for calls in planned:
        called = ", ".join(f"{call['name']}({_arguments(call['input'])})" for call in calls)
        lines.append(f"results {'+=' if lines else '='} await asyncio.gather({called})")
    code = "\n".join([*lines, "print(*results, sep='\\n')"])
    return {
        "type": "server_tool_use",
        "id": code_id,
        "name": "code_execution",
        "input": {"code": code},
    }


def _arguments(given: Json) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in given.items())


def _result(code_id: str, talk: Conversation) -> Json:
    said = "".join(f"{call.result}\n" for made in talk.rounds for call in made)
    ran: Json = {"stdout": said, "stderr": "", "return_code": 0, "content": []}
    return {
        "type": "code_execution_tool_result",
        "tool_use_id": code_id,
        "content": {"type": "code_execution_result", **ran},
    }
