"""What a model answers whose code runs at the provider and calls tools from there."""

from __future__ import annotations

from typing import Any

from tests.support.scripted import Scripted, bash

Json = dict[str, Any]
EARLY, LATE = "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"
CURRENT = "code_execution_20260120"


def code(number: int = 1) -> Json:
    """A call that the provider runs itself."""
    call_id = f"srvtoolu_{number}"
    given = {"code": "x = await bash()\nprint(x)"}
    return {"type": "server_tool_use", "id": call_id, "name": "code_execution", "input": given}


def code_result(number: int = 1) -> Json:
    content = {"type": "code_execution_result", "stdout": "42", "stderr": "", "return_code": 0}
    call_id = f"srvtoolu_{number}"
    return {"type": "code_execution_tool_result", "tool_use_id": call_id, "content": content}


def called(call: Json, number: int = 1, code_type: str = CURRENT) -> Json:
    """The call as that code makes it, which waits for its result."""
    return {**call, "caller": {"type": code_type, "tool_id": f"srvtoolu_{number}"}}


def by_code(command: str, number: int = 1) -> Json:
    return called(bash(command), number)


def container(name: str, expires_at: str = LATE) -> Json:
    return {"container": {"id": name, "expires_at": expires_at}}


def named(scripted: Scripted) -> list[str | None]:
    """The container of each request."""
    return [body.get("container") for body in scripted.bodies]
