"""What the OpenAPI document says is what the routes do, whatever is sent to them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest

from session_worker.demo_model import Reply
from sidecar.protocol.bounds import MIB
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint
from tests.support.processes import eventually
from tests.support.scripted import FINE, bash, scripted_session

Json = dict[str, Any]
SSE = "text/event-stream"
FUZZ_S = 900
"""The long run needs 60 s on an idle machine, the short one 10 s."""
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
)
CONFIGURATION = """
continue-on-failure = true
request-timeout = 30.0
warnings = false
cache.enabled = false
generation = {{ deterministic = true, database = "none" }}
# 501 is a batch, and 503 a client that never takes its answers: both as documented
checks.not_a_server_error.expected-statuses = ["2XX", "3XX", "4XX", 501, 503]

# what is there, and what is meant, most of the time: chance alone finds neither
[dictionaries]
session.values = ["{session_id}"]
run.values = ["{run_id}"]
connection.values = ["{connection_id}"]
agent.values = ["sidecar"]
role.values = ["user"]
text.values = ["text/plain"]

[parameters]
"query.follow" = "0"  # or a stream has no end
"path.session_id" = {{ dictionary = "session", probability = 0.8 }}
"path.run_id" = {{ dictionary = "run", probability = 0.5 }}
"path.name" = {{ dictionary = "agent", probability = 0.5 }}
"body.session_id" = {{ dictionary = "session", probability = 0.9 }}
"body.agent_name" = {{ dictionary = "agent", probability = 0.9 }}
"body.input[*].role" = {{ dictionary = "role", probability = 0.9 }}
"body.input[*].parts[*].content_type" = {{ dictionary = "text", probability = 0.9 }}

[[operations]]
include-name = "POST /acp"  # not GET: such a stream has no end either
parameters."header.Acp-Connection-Id" = {{ dictionary = "connection", probability = 0.5 }}
"""


def initialized(endpoint: Endpoint) -> str:
    """The id of an ACP-C connection."""
    params = {"protocolVersion": 1}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    with endpoint.request("POST", "/acp", message) as response:
        connection_id = response.headers["Acp-Connection-Id"]
    assert connection_id
    return connection_id


def conforms(document: Json, route: str, status: int, value: Any, media_type: str) -> None:
    method, path = route.split()
    reply = document["paths"][path][method.lower()]["responses"][str(status)]
    schema = reply["content"][media_type]["schema"]
    if media_type == SSE:
        schema = schema["properties"]["data"]["contentSchema"]
    whole = schema | {"components": document["components"]}
    jsonschema.validate(value, whole, jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--phases=coverage,fuzzing", "--max-examples=3"), id="short"),
        pytest.param(("--max-examples=100",), id="long", marks=pytest.mark.soak),
    ],
)
@pytest.mark.timeout(FUZZ_S)
def test_no_request_is_answered_otherwise_than_documented_and_none_leaves_a_trace(
    daemon: Daemon, work: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Schemathesis is a program here: imported, it would cost every test process seconds."""
    with scripted_session(daemon, work, lambda _: FINE, tcp=True) as session:
        endpoint = session.endpoint
        info = daemon.call("session.status", session_id=endpoint.session_id)
        worker = psutil.Process(info["pid"])
        configuration = tmp_path / "schemathesis.toml"
        configuration.write_text(
            CONFIGURATION.format(
                session_id=endpoint.session_id,
                run_id=endpoint.prompt("go")["run_id"],
                connection_id=initialized(endpoint),
            )
        )
        files, memory = worker.num_fds(), worker.memory_info().rss
        command = [
            *(sys.executable, "-m", "schemathesis.cli", f"--config-file={configuration}", "run"),
            f"{info['endpoint']['url']}/openapi.json",
            f"--header=Authorization: Bearer {info['endpoint']['token']}",
            f"--checks={','.join(CHECKS)}",
            *options,
        ]
        fuzz = subprocess.run(command, capture_output=True, text=True)
        assert fuzz.returncode == 0, fuzz.stdout + fuzz.stderr
        health = endpoint.get("/healthz")[1]
        assert (health["pid"], health["state"]) == (info["pid"], "idle")
        assert len(session.model.requests) > 10  # prompts were among it
        log = daemon.home / "state/sessions" / endpoint.session_id / "worker.log"
        assert log.read_text() == ""
        # what is not over holds its connection, and most of it a reader of the ring
        eventually(lambda: worker.num_fds() <= files, "everything that was begun is over")
        assert worker.memory_info().rss - memory < 16 * MIB


def test_a_method_that_is_not_documented_is_refused_with_those_that_are(
    daemon: Daemon, work: Path
) -> None:
    endpoint = daemon.session(work)
    for path, methods in endpoint.get("/openapi.json")[1]["paths"].items():
        with endpoint.request("PATCH", re.sub(r"{\w+}", "x", path)) as response:
            allowed = response.headers["Allow"].split(",")
            assert response.status == 405
        assert {method.lower() for method in allowed} - {"head"} == methods.keys(), path


def test_questions_and_streams_are_as_documented(daemon: Daemon, work: Path) -> None:
    with scripted_session(daemon, work, mode="ask") as session:
        endpoint, session_id = session.endpoint, session.endpoint.session_id
        document = endpoint.get("/openapi.json")[1]
        run_id = session.start(Reply([bash("touch made")]), FINE)
        eventually(lambda: session.run(run_id)["status"] == "awaiting", "there is a question")
        for path in [
            "/healthz",
            "/runs/{run_id}",
            "/runs/{run_id}/events",
            "/sessions/{session_id}/permissions",
        ]:
            status, value = endpoint.get(path.format(run_id=run_id, session_id=session_id))
            conforms(document, f"GET {path}", status, value, "application/json")
        message = {"role": "user", "parts": [{"content": "allow_once"}]}
        resume = {"await_resume": {"type": "message", "message": message}, "mode": "stream"}
        with endpoint.stream("POST", f"/runs/{run_id}", resume) as events:
            resumed = list(events)
        for event in resumed:
            conforms(document, "POST /runs/{run_id}", 200, event, SSE)
        assert resumed[-1]["type"] == "run.completed"
        for envelope in endpoint.events():
            conforms(document, "GET /sessions/{session_id}/events", 200, envelope, SSE)


def test_messages_of_the_agent_client_protocol_are_as_documented(
    daemon: Daemon, work: Path
) -> None:
    endpoint = daemon.session(work)
    document = endpoint.get("/openapi.json")[1]
    prompt = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "session/prompt",
        "params": {
            "sessionId": endpoint.session_id,
            "prompt": [{"type": "text", "text": "list the files here"}],
        },
    }
    headers = {"Acp-Connection-Id": initialized(endpoint), "Accept": SSE}
    with endpoint.stream("POST", "/acp", prompt, **headers) as messages:
        told = list(messages)
    for message in told:
        conforms(document, "POST /acp", 200, message, SSE)
    assert told[-1]["result"]["stopReason"] == "end_turn"
