"""The Python SDK of the Agent Client Protocol, as a test holds it: lines in, lines out.

`connect` says where the agent is: `url`, HTTP or WebSocket, with `socket` or `headers`; or `argv`
and `env`. Any other request is made through the SDK under its ACP name, as soon as it is read; what
the SDK makes of the answer, of updates and of questions goes to stdout, and beside it every raw
message, as `wire`. `disconnect` ends the connection, which the first request had made.
"""

import asyncio
import json
import re
import sys
from contextlib import AsyncExitStack

import httpx
from acp import RequestError, connect_to_agent, spawn_agent_process
from acp.connection import StreamDirection
from acp.http import create_http_stream
from acp.schema import (
    ReadTextFileResponse,
    RequestPermissionResponse,
    WriteTextFileResponse,
)
from acp.ws import create_websocket_stream

CALLS = {
    "initialize": "initialize",
    "session/new": "new_session",
    "session/load": "load_session",
    "session/resume": "resume_session",
    "session/list": "list_sessions",
    "session/prompt": "prompt",
    "session/cancel": "cancel",
    "session/set_mode": "set_session_mode",
}


def say(**message):
    print(json.dumps(message), flush=True)


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def observe(event):
    heard = event.direction is StreamDirection.INCOMING
    say(method="wire", params={"heard" if heard else "said": event.message})


class Editor:
    """What the SDK wants of a client."""

    def __init__(self):
        self.questions = {}

    async def session_update(self, session_id, update, **meta):
        say(method="session/update", params={"sessionId": session_id, "update": plain(update)})

    async def request_permission(self, session_id, tool_call, options, **meta):
        params = {"sessionId": session_id, "toolCall": plain(tool_call)}
        params["options"] = [plain(option) for option in options]
        result = await self.put("session/request_permission", params)
        return RequestPermissionResponse.model_validate(result)

    async def read_text_file(self, session_id, path, **more):
        params = {"sessionId": session_id, "path": path}
        return ReadTextFileResponse.model_validate(await self.put("fs/read_text_file", params))

    async def write_text_file(self, session_id, path, content, **meta):
        params = {"sessionId": session_id, "path": path, "content": content}
        return WriteTextFileResponse.model_validate(await self.put("fs/write_text_file", params))

    async def put(self, method, params):
        """A request to the test; its result."""
        number = f"question-{len(self.questions)}"
        self.questions[number] = answer = asyncio.get_running_loop().create_future()
        say(id=number, method=method, params=params)
        return await answer


async def connect(place, editor, stack):
    observers = {"observers": [observe]}
    if "argv" in place:
        process = spawn_agent_process(editor, *place["argv"], env=place["env"], **observers)
        return (await stack.enter_async_context(process))[0]
    url, headers = place["url"], place.get("headers")
    if url.startswith("ws"):
        stream = await create_websocket_stream(url, headers=headers)
    elif "socket" in place:
        transport = httpx.AsyncHTTPTransport(uds=place["socket"])
        http = await stack.enter_async_context(httpx.AsyncClient(transport=transport, timeout=None))
        stream = create_http_stream(url, client=http)
    else:
        stream = create_http_stream(url, headers=headers)
    return await stack.enter_async_context(connect_to_agent(editor, stream, **observers))


async def ask(agent, message):
    params = {re.sub("[A-Z]", r"_\g<0>", k).lower(): v for k, v in message["params"].items()}
    result = await getattr(agent, CALLS[message["method"]])(**params)
    return {} if result is None else plain(result)


async def answer(message, work):
    try:
        told = {"result": await work}
    except RequestError as error:
        told = {"error": {"code": error.code, "message": str(error)}}
    except Exception as error:  # noqa: BLE001 whatever it raises is what the test asks for
        told = {"error": {"code": 0, "message": f"{type(error).__name__}: {error}"}}
    if "id" in message:
        say(id=message["id"], **told)


async def main():
    editor, stack, place, agent, asking = Editor(), AsyncExitStack(), {}, None, set()

    async def reach(message):
        nonlocal agent
        agent = agent or await connect(place, editor, stack)
        return await ask(agent, message)

    while line := await asyncio.to_thread(sys.stdin.readline):
        message = json.loads(line)
        match message.get("method"):
            case None:
                editor.questions[message["id"]].set_result(message["result"])
            case "connect":
                place = message["params"]
                say(id=message["id"], result={})
            case "disconnect":
                await stack.aclose()
                agent = None
                say(id=message["id"], result={})
            case _:
                task = asyncio.create_task(answer(message, reach(message)))
                asking.add(task)
                task.add_done_callback(asking.discard)


asyncio.run(main())
