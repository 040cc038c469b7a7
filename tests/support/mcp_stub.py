"""A small MCP server on stdio that can misbehave: `python mcp_stub.py [MODE]`.

Nothing but the standard library, so that it is there in milliseconds. Modes: `hang` never answers,
`exit` ends at once, `flood` fills stderr first, `junk` writes no JSON to stdout, `modern` speaks
the protocol of 2026-07-28, `endless` has a list of tools without an end and `listless` none at all,
`deaf` ignores SIGTERM and the end of its input, `child` leaves a child with its stdout when it
dies.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else ""
OBJECT = {"type": "object"}
TOOLS: dict[str, dict[str, Any]] = {
    name: {"name": name, "inputSchema": OBJECT}
    for name in (
        "echo",
        "env",
        "die",
        "bytes",
        "rename",
        "slow",
        "never",
        "cancelled",
        "pid",
        "odd",
    )
}
TOOLS["echo"]["annotations"] = {"readOnlyHint": True}
TOOLS["echo"]["inputSchema"] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "after_s": {"type": "number"}},
    "required": ["text"],
}
MODERN = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if MODE == "modern" else {}
CANCELLED: list[Any] = []
SUBSCRIPTIONS: list[Any] = []
LISTENED = threading.Event()
LOCK = threading.Lock()


def send(**message: Any) -> None:
    with LOCK:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def call(request: Any, name: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
    result = text("")
    match name:
        case "echo":
            time.sleep(arguments.get("after_s", 0))
            result = text(arguments["text"])
        case "env":
            result = text(json.dumps(dict(os.environ)))
        case "pid":
            result = text(str(os.getpid()))
        case "bytes":
            result = text("x" * arguments["n"])
        case "odd":
            result = text("half \ud800 a character")
        case "cancelled":
            result = text(json.dumps(CANCELLED))
        case "die":
            print("I am dying", file=sys.stderr, flush=True)
            if MODE == "child":
                subprocess.Popen(["sleep", "60"])
            os._exit(7)
        case "never":
            return
        case "slow":
            for step in range(arguments["steps"]):
                time.sleep(arguments["pause_s"])
                token = meta["progressToken"]
                params = {"progressToken": token, "progress": step, "message": f"step {step}"}
                send(method="notifications/progress", params=params)
            result = text("done")
        case "rename":
            if MODE == "modern":
                LISTENED.wait()
            TOOLS["renamed"] = TOOLS.pop("never") | {"name": "renamed"}
            meta = {"io.modelcontextprotocol/subscriptionId": SUBSCRIPTIONS and SUBSCRIPTIONS[0]}
            send(method="notifications/tools/list_changed", params={"_meta": meta})
    send(id=request, result=result | MODERN)


def answer(message: dict[str, Any]) -> None:
    request, params = message.get("id"), message.get("params") or {}
    capabilities = {"tools": {"listChanged": True}}
    match message.get("method"):
        case "server/discover" if MODE == "modern":
            versions = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
            send(id=request, result=versions | MODERN)
        case "initialize" if MODE != "modern":
            who = {"serverInfo": {"name": "stub", "version": "1"}, "capabilities": capabilities}
            send(id=request, result={"protocolVersion": "2025-06-18", **who})
        case "subscriptions/listen" if MODE == "modern":
            meta = {"io.modelcontextprotocol/subscriptionId": request}
            acknowledged = {"notifications": {"toolsListChanged": True}, "_meta": meta}
            send(method="notifications/subscriptions/acknowledged", params=acknowledged)
            SUBSCRIPTIONS.append(request)
            LISTENED.set()
        case "tools/list" if MODE != "listless":
            page = int(params.get("cursor") or 0)  # two tools a page
            names = sorted(TOOLS)[2 * page : 2 * page + 2]
            more = {"nextCursor": str(page + 1)} if 2 * page + 2 < len(TOOLS) else {}
            if MODE == "endless":
                more = {"nextCursor": "1"}
            send(id=request, result={"tools": [TOOLS[name] for name in names], **more, **MODERN})
        case "tools/call":
            rest = (params["name"], params.get("arguments") or {}, params.get("_meta") or {})
            threading.Thread(target=call, args=(request, *rest), daemon=True).start()
        case "notifications/cancelled":
            CANCELLED.append(params["requestId"])
        case method if request is not None and method != "tools/list":
            send(id=request, error={"code": -32601, "message": f"no {method}"})
        case _:
            pass


def main() -> None:
    if MODE == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE == "exit":
        print("no such database", file=sys.stderr)
        raise SystemExit(3)
    if MODE == "flood":
        for _ in range(1000):
            print("f" * 1000, file=sys.stderr)
    if MODE == "junk":
        print("Welcome!\n{not json\n[1, 2]\n", flush=True)
    for line in sys.stdin:
        if MODE != "hang":
            answer(json.loads(line))
    while MODE == "deaf":
        time.sleep(60)


if __name__ == "__main__":
    main()
