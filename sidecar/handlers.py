"""The control plane's methods: from validated params to the supervisor, one function a row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from sidecar import output
from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError
from sidecar.rpc import Handler, walled
from sidecar.server import Connection
from sidecar.subagents import asked_by_worker
from sidecar.supervisor import Supervisor

Params = dict[str, Any]


def build(supervisor: Supervisor) -> dict[str, Callable[..., Awaitable[Any]]]:
    """A walled handler for every method of `sidecar.protocol.methods`."""
    find = supervisor.sessions.find

    async def create(connection: Connection, p: Params) -> Any:
        return await supervisor.create(p, for_worker=connection.session_id is not None)

    async def status(_: Connection, p: Params) -> Any:
        return await supervisor.status(find(p["session_id"]))

    async def list_sessions(_: Connection, p: Params) -> Any:
        return supervisor.sessions.page(
            ended=p["all"], state=p.get("state"), limit=p["limit"], cursor=p.get("cursor")
        )

    async def destroy(_: Connection, p: Params) -> Any:
        session = find(p["session_id"])
        return await supervisor.destroy(session, p["grace_s"], purge=p["purge"])

    async def resume(_: Connection, p: Params) -> Any:
        return await supervisor.resume(find(p["session_id"]), p["env"])

    async def rename(_: Connection, p: Params) -> Any:
        return supervisor.rename(find(p["session_id"]), p["name"])

    async def read_output(_: Connection, p: Params) -> Any:
        return await output.read(
            find(p["session_id"]), p["after"], limit=p["limit"], wait_s=p["wait_s"]
        )

    async def subscribe(connection: Connection, p: Params) -> Any:
        if len(connection.subscriptions) >= bounds.SUBSCRIPTIONS_PER_CONNECTION:
            raise SidecarError(
                "limit_reached",
                f"{bounds.SUBSCRIPTIONS_PER_CONNECTION} subscriptions on one connection",
                "unsubscribe from some, or open another connection",
            )
        return output.subscribe(connection, find(p["session_id"]), p["after"])

    async def unsubscribe(connection: Connection, p: Params) -> Any:
        task = connection.subscriptions.pop(p["subscription"], None)
        if task is None:
            raise SidecarError(
                "invalid_params",
                "no such subscription on this connection",
                "session.subscribe answers its name; it ends with its connection",
            )
        task.cancel()
        return {}

    async def watch(connection: Connection, _: Params) -> Any:
        connection.wants_changes = True
        return {}

    async def daemon_status(_: Connection, __: Params) -> Any:
        return await supervisor.daemon_status()

    async def ping(_: Connection, __: Params) -> Any:
        return {}

    async def shutdown(connection: Connection, p: Params) -> Any:
        await supervisor.shutdown(stop_sessions=p["stop_sessions"], drain_s=p["drain_s"])
        connection.after_reply = supervisor.stop_asked.set
        return {}

    handlers = {
        "session.create": create,
        "session.status": status,
        "session.list": list_sessions,
        "session.destroy": destroy,
        "session.resume": resume,
        "session.rename": rename,
        "session.output": read_output,
        "session.subscribe": subscribe,
        "session.unsubscribe": unsubscribe,
        "sidecar.subscribe": watch,
        "sidecar.status": daemon_status,
        "sidecar.ping": ping,
        "sidecar.shutdown": shutdown,
    }

    def guarded(name: str, handler: Handler[Connection]) -> Handler[Connection]:
        async def call(connection: Connection, p: Params) -> Any:
            if connection.session_id is not None:
                p = asked_by_worker(name, p, connection.session_id, find)
            return await handler(connection, p)

        return call

    return {name: walled(name, guarded(name, handler)) for name, handler in handlers.items()}
