"""What a turn costs at 10 to 5,000 messages of history: only sending them may grow with them.

Run as `python benchmarks/bench_turn.py`. CPU time, since waiting is the model's; "our own code" is
a whole turn in this process over a transport that answers at once, the worker is a real one, and
its model a server in a process of its own. Compare figures within one run only.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.figures import running, single
from session_worker.agent import Agent
from session_worker.blocks import tool_result
from session_worker.conversation import Conversation
from session_worker.core import SessionCore
from session_worker.demo_model import Reply, text
from session_worker.demo_model.wire import encode, stream_events
from session_worker.equipment import equip
from session_worker.event_log import EventLog
from session_worker.loop import run_prompt
from session_worker.model import Model
from session_worker.prefix import Prefix
from session_worker.project.place import Place
from session_worker.provider import Provider
from session_worker.reporter import Reporter
from session_worker.request import RequestWriter
from session_worker.spec import Budget, PermissionSpec, SessionSpec
from session_worker.tools import process
from session_worker.tools.toolbox import SCHEMAS
from session_worker.transcript import Transcript
from session_worker.turn import AgentTurn
from sidecar.protocol import bounds
from sidecar.protocol.policy_file import Rules
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint

MESSAGES = (10, 100, 1_000, 5_000)
TURNS = 40
WARM_UP = 10
RESULT_CHARS = 1_000
"""Of a tool result; the messages of a history are about as long together."""
FLAT = 1.5
"""What our own code may cost at the longest history, as a multiple of the shortest."""
SYSTEM = "Be brief. " * 200
USAGE = {"input_tokens": 1_000, "output_tokens": 10}
ANSWER = b"".join(
    map(encode, stream_events(Reply([text("All is well.")], usage=USAGE), "msg_1", "m", {}))
)
STREAM = {"content-type": "text/event-stream"}


def main() -> None:
    with TemporaryDirectory(prefix="sc-", dir="/tmp") as directory, loopback() as base_url:
        paths = {count: Path(directory, str(count)) for count in MESSAGES}
        asyncio.run(measure_own(paths, base_url))
        with running() as daemon:
            for count, path in paths.items():
                measure_worker(daemon, count, path / "transcript", base_url)


def row(name: str, seconds: list[float]) -> float:
    """The fastest round: pure code does not wait, whatever else the machine has to do."""
    value = 1000 * min(seconds)
    single(name, value, "ms CPU")
    return value


# --- in this process -----------------------------------------------------------------------


async def measure_own(paths: dict[int, Path], base_url: str) -> None:
    """Turns without a network, and the network without the rest; the histories take turns too, so
    that a noisy moment hits them all."""
    provider = Provider("claude-sonnet-5-5", base_url=base_url, api_key="k")
    ours: dict[int, list[float]] = {count: [] for count in paths}
    sending: dict[int, list[float]] = {count: [] for count in paths}
    network = Model(provider)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(network.close)
        agents = {
            n: await stack.enter_async_context(agent_at(p, provider, n)) for n, p in paths.items()
        }
        for _ in range(WARM_UP + TURNS):
            for count, agent in agents.items():
                ours[count].append(await spent(turn(agent)))
                body = agent.writer.write(agent.conversation.messages, bounds.MAX_TOKENS_DEFAULT)
                sending[count].append(await spent(send(network, body)))
    for count in paths:
        row(f"{count:5} messages: sending them, receiving an answer", sending[count][WARM_UP:])
    own = [row(f"{count:5} messages: our own code", ours[count][WARM_UP:]) for count in paths]
    verdict = "met" if own[-1] / own[0] <= FLAT else "MISSED"
    print(
        f"our own code, longest to shortest: {own[-1] / own[0]:.2f} x   aim <= {FLAT} x, {verdict}"
    )


async def spent(work: Coroutine[Any, Any, None]) -> float:
    began = time.process_time()
    await work
    return time.process_time() - began


async def turn(agent: Agent) -> None:
    run = agent.core.submit("go on")
    await agent.core.next_run()
    result = await run_prompt(agent, run)
    assert result.final_text == "All is well.", result
    agent.core.finish(run, result)


async def send(network: Model, body: bytes) -> None:
    async for _ in network.stream(body):
        pass


@asynccontextmanager
async def agent_at(path: Path, provider: Provider, messages: int) -> AsyncIterator[Agent]:
    """What a worker makes of a session, its model answering without a network."""
    path.mkdir()
    spec = specification(path, provider)
    answers = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=STREAM, content=ANSWER))
    with ExitStack() as stack:
        link, theirs = socket.socketpair()
        stack.enter_context(link)
        stack.enter_context(theirs)
        asyncio.get_running_loop().add_reader(theirs, theirs.recv, 1 << 16)
        stack.callback(asyncio.get_running_loop().remove_reader, theirs)
        transcript = Transcript.open(spec.places["transcript"])
        stack.callback(transcript.close)
        log = EventLog(spec.places["ring"], spec.ring_bytes)
        stack.callback(log.close)
        core = SessionCore(spec, log, transcript, Reporter(link))
        place, facts = Place.of(spec), provider.facts
        equipment = equip(core, place, {}, process.start, [], path)
        frame = [SYSTEM, SCHEMAS]
        talk = Conversation(transcript, [], provider.model, frame, api_blocks=facts.compaction)
        writer = RequestWriter(provider.model, SYSTEM, SCHEMAS, cached=facts.caching)
        model = Model(provider, answers)
        fill(talk, messages)
        yield Agent(spec, facts, core, talk, model, writer, Prefix(writer), equipment, 0)
        await model.close()


def specification(path: Path, provider: Provider) -> SessionSpec:
    return SessionSpec(
        session_id="bench",
        incarnation=1,
        restart_reason=None,
        idle_timeout_s=0,
        cwd=path,
        system=SYSTEM,
        max_turns=1,
        max_tokens=bounds.MAX_TOKENS_DEFAULT,
        mode="bypass",
        ring_bytes=bounds.RING_DEFAULT_BYTES,
        cgroup=None,
        budget=Budget(),
        prices={},
        permissions=PermissionSpec("deny", 0, (), (Rules("system"), Rules("user")), ()),
        mcp_servers={},
        sandbox={"level": "none", "require": False, "network": False},
        private={name: path / name for name in ("runtime", "state", "config")},
        places={name: path / name for name in ("transcript", "ring", "spill")},
        tool_env={},
        provider=provider,
    )


def fill(conversation: Conversation, messages: int) -> None:
    """Runs of one prompt, four calls with their results, and an answer."""
    said = 0
    while said < messages:
        run_id = f"run-{said}"
        conversation.add_prompt([text("please look once more")], run_id)
        for n in range(4):
            call = {"type": "tool_use", "id": f"toolu_{said}_{n}", "name": "bash", "input": {}}
            call["input"] = {"command": f"sed -n {n}p some/file/of/the/project.py"}
            conversation.add_answer(answer(text("I look."), call), run_id)
            result = tool_result(call["id"], "x" * RESULT_CHARS, is_error=False)
            conversation.add_results([result], run_id, "/")
        conversation.add_answer(answer(text("It is as it was.")), run_id)
        said += 10


def answer(*content: dict[str, Any]) -> AgentTurn:
    stop = "tool_use" if content[-1]["type"] == "tool_use" else "end_turn"
    return AgentTurn.from_response({"content": list(content), "stop_reason": stop})


# --- a real worker -------------------------------------------------------------------------


def measure_worker(daemon: Daemon, messages: int, transcript: Path, base_url: str) -> None:
    """The session that this transcript is: its restore, and turns."""
    env = {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": "k"}
    info = daemon.create(daemon.home / "work", env=env)
    session_id = info["session_id"]
    daemon.call("session.destroy", session_id=session_id)
    own = daemon.home / "state" / "sessions" / session_id / "transcript.jsonl"
    own.write_bytes(transcript.read_bytes())
    info = daemon.call("session.resume", session_id=session_id, env=env)
    single(
        f"{messages:5} messages: a real worker, restoring them", 1000 * cpu_s(info["pid"]), "ms CPU"
    )
    endpoint = Endpoint(info)
    seconds: list[float] = []
    for _ in range(WARM_UP + TURNS):
        before = cpu_s(info["pid"])
        endpoint.prompt("go on")
        seconds.append(cpu_s(info["pid"]) - before)
    row(f"{messages:5} messages: a real worker, all of a turn", seconds[WARM_UP:])
    daemon.call("session.destroy", session_id=session_id, purge=True)


def cpu_s(pid: int) -> float:
    """Of all its threads, to the nanosecond: what `psutil` reads has 10 ms steps."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


@contextmanager
def loopback() -> Iterator[str]:
    """A model that gives one answer to everything; it checks nothing, or it would be the slower."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = multiprocessing.get_context("fork").Process(target=serve, args=(listener,))
        server.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.terminate()
            server.join()


def serve(listener: socket.socket) -> None:
    async def reply(request: web.Request) -> web.Response:
        await request.read()
        if request.path.endswith("count_tokens"):
            return web.json_response({"input_tokens": 1_000})
        return web.Response(body=ANSWER, headers=STREAM)

    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/{path:.*}", reply)
    web.run_app(app, sock=listener, print=None, handle_signals=False)


if __name__ == "__main__":
    main()
