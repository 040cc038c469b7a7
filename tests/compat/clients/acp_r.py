"""The client of acp-sdk, of the Agent Communication Protocol, as a test holds it: lines in, lines
out. `connect` says where the agent is: `url`, and `socket` or `headers`. Any other request is the
method of the client by that name; what it yields comes as a list. `session` goes on in a session.
"""

import asyncio
import inspect
import json
import sys

import httpx
from acp_sdk.client import Client
from acp_sdk.models import ACPError, MessageAwaitResume
from pydantic import BaseModel


def plain(value):
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def connect(url, socket=None, headers=None):
    transport = httpx.AsyncHTTPTransport(uds=socket) if socket else None
    return Client(base_url=url, transport=transport, headers=headers, timeout=None)


async def ask(client, method, params):
    if "await_resume" in params:
        params["await_resume"] = MessageAwaitResume.model_validate(params["await_resume"])
    asked = getattr(client, method)(**params)
    if inspect.isasyncgen(asked):
        return [plain(value) async for value in asked]
    return plain(await asked)


async def main():
    client = None
    while line := await asyncio.to_thread(sys.stdin.readline):
        message = json.loads(line)
        method, params = message["method"], message["params"]
        result = {}
        try:
            if method == "connect":
                client = connect(**params)
            elif method == "session":
                client = client.session()
            else:
                result = await ask(client, method, params)
            answer = {"result": result}
        except ACPError as error:
            answer = {"error": plain(error.error)}
        print(json.dumps({"id": message["id"], **answer}), flush=True)


asyncio.run(main())
