"""The API's own MCP connector: what requests carry, what comes back, and what nobody may see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from session_worker.demo_model import ApiError, Reply, Streamed, text
from tests.support.daemon import Daemon
from tests.support.scripted import FINE, scripted_session

DOCS = {
    "url": "https://docs.example/mcp",
    "connector": True,
    "authorization_token": "s3cret-${SIDECAR_SESSION}",
    "exclude": ["delete"],
}
BETA = "mcp-client-2025-11-20"
CALLED: dict[str, Any] = {
    "type": "mcp_tool_use",
    "id": "mcptoolu_1",
    "name": "find",
    "server_name": "docs",
    "input": {},
}
GIVEN: dict[str, Any] = {
    "type": "mcp_tool_result",
    "tool_use_id": "mcptoolu_1",
    "is_error": False,
    "content": [{"type": "text", "text": "found"}],
}
ANSWER = Reply(
    [
        Streamed(CALLED, [{"type": "input_json_delta", "partial_json": '{"q": "x"}'}]),
        GIVEN,
        text("here"),
    ]
)


def test_a_server_is_left_to_the_api_and_its_token_stays_there(daemon: Daemon, work: Path) -> None:
    with scripted_session(daemon, work, mcp_servers={"docs": DOCS}) as scripted:
        path = f"/sessions/{scripted.endpoint.session_id}/mcp"
        assert scripted.prompt(ANSWER)["result"]["final_text"] == "here"
        assert scripted.prompt(FINE)["result"]["final_text"] == "fine"
        first, second = scripted.model.requests
        token = first.body["mcp_servers"][0].pop("authorization_token")
        assert token == f"s3cret-{scripted.endpoint.session_id}"
        assert first.body["mcp_servers"] == [{"type": "url", "url": DOCS["url"], "name": "docs"}]
        toolset = {"type": "mcp_toolset", "mcp_server_name": "docs"}
        closed = {"configs": {"delete": {"enabled": False}}}
        assert first.body["tools"][-1] == toolset | closed
        assert first.headers["anthropic-beta"].split(",") == [BETA]
        end = first.raw.index(b'"messages":')
        assert first.raw[:end] == second.raw[:end]
        assert scripted.sent[1]["content"] == [CALLED | {"input": {"q": "x"}}, GIVEN, text("here")]
        shown = [u for u in scripted.events("update") if u.get("toolCallId") == "mcptoolu_1"]
        assert [(u["sessionUpdate"], u["status"]) for u in shown] == [
            ("tool_call", "in_progress"),
            ("tool_call_update", "completed"),
        ]
        assert shown[0]["title"] == "docs: find" and "found" in json.dumps(shown[1]["content"])
        counted = next(r for r in scripted.model.model.requests if "count_tokens" in r.path)
        assert "mcp_servers" in counted.body and counted.headers["anthropic-beta"] == BETA

        said = f"docs: 401 for the token {token}"
        failed = scripted.prompt(ApiError(400, said))["result"]["error"]
        assert failed["message"] == "docs: 401 for the token ***"
        (server,) = scripted.endpoint.get(path)[1]["servers"]
        assert (server["transport"], server["state"]) == ("connector", "connected")
        files = daemon.home / "state/sessions" / scripted.endpoint.session_id
        kept = [file for file in files.rglob("*") if file.is_file()]
        assert not [file.name for file in kept if token.encode() in file.read_bytes()]
        assert token not in json.dumps([server, scripted.endpoint.events()])
