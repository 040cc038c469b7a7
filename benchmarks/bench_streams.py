"""What a session's events cost on their way out: rate to many clients, delay, memory.

Run as `python benchmarks/bench_streams.py`. Real daemon, real worker, a model server. The same
bytes, sent by bare aiohttp to the same clients one write an event, stand beside each rate. Clients
and the bare server have processes of their own: with `clients` or `bare` as first argument, this
file is one of those.
"""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.figures import create, memory, row, running, single
from session_worker.demo_model import Reply, text
from tests.support.daemon import Daemon
from tests.support.endpoint import Endpoint, run_request
from tests.support.model_server import model_server

CLIENTS = (1, 4, 20)
EVENTS = 20_000
"""Deltas of one run."""
RING_BYTES = 64 * 1024 * 1024
"""Holds all of them."""
RATIO = 0.6
"""Of bare aiohttp, for one client."""
PROMPTS = 20
THINKS_S = 0.02
"""Of the model before its first text, so that what came before has been taken."""
STALLED = 20
"""Clients of each kind that never read."""
FLOOD_MB = 200
FLOOD_EVENTS = 40_000
"""Deltas of one of the runs that make the flood."""
FLAT_MB = 4
"""Of difference, for what malloc and the garbage collector happen to hold."""
END = b"event: run_finished\n"
WORD = "word " * 3


def main() -> None:
    with running() as daemon:
        measure_rates(daemon)
        measure_delay(daemon)
        measure_memory(daemon)


# --- rates ---------------------------------------------------------------------------------


def measure_rates(daemon: Daemon) -> None:
    with model_server([Reply([text(WORD * EVENTS)])] * (1 + len(CLIENTS))) as model:
        first = model.session(daemon, daemon.home / "work", ring_bytes=RING_BYTES)
        first.prompt("go")
        path = f"/sessions/{first.session_id}/events?follow=0"
        with first.request("GET", path) as response, tempfile.NamedTemporaryFile() as copy:
            copy.write(response.read())
            copy.flush()
            for count in CLIENTS:
                with bare_server(copy.name) as bare:
                    floor = rate(bare, "/", count)
                show("replayed", count, rate(first.path, path, count), floor)
                live = model.session(daemon, daemon.home / "work", ring_bytes=RING_BYTES)
                follow = f"/sessions/{live.session_id}/events?after=0"
                with clients(live.path, follow, count) as answer:
                    live.prompt("go", "async")
                    show("live from the model", count, answer(), floor)


def show(what: str, count: int, events_s: float, floor: float) -> None:
    ratio = events_s / floor
    aim = ""
    if count == 1 and what == "replayed":
        aim = f"   aim >= {RATIO}, {'met' if ratio >= RATIO else 'MISSED'}"
    name = f"events to {count} client{'s' * (count > 1)}, {what}"
    print(f"{name:48} {events_s:8.0f} /s in all, {ratio:.2f} of bare aiohttp{aim}", flush=True)


def rate(endpoint: str, path: str, count: int) -> float:
    with clients(endpoint, path, count) as answer:
        return answer()


@contextmanager
def clients(endpoint: str, path: str, count: int) -> Generator[Any]:
    """Attached when the block begins; what is yielded waits for the events a second of all."""
    argv = [sys.executable, __file__, "clients", endpoint, path, str(count)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"attached\n"
        stdout = process.stdout
        yield lambda: float(stdout.readline())


def be_clients(endpoint: str, path: str, count: int) -> None:
    """Reads each stream to its end event; the time counts from the first event of any."""
    selector = selectors.DefaultSelector()
    for _ in range(count):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(endpoint)
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        selector.register(sock, selectors.EVENT_READ, (sock, bytearray()))
    print("attached", flush=True)
    began, seen, left = 0.0, 0, count
    while left:
        for key, _ in selector.select():
            sock, tail = key.data
            data = sock.recv(1 << 20)
            tail += data
            seen += tail.count(b"\nid: ")
            began = began or time.perf_counter()
            if END in tail or not data:
                selector.unregister(sock)
                left -= 1
            del tail[: -len(END)]
    print(seen / (time.perf_counter() - began), flush=True)


@contextmanager
def bare_server(copy: str) -> Generator[str]:
    with tempfile.TemporaryDirectory(prefix="sc-", dir="/tmp") as place:
        path = f"{place}/bare"
        argv = [sys.executable, __file__, "bare", path, copy]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            yield path
            process.kill()


def be_bare(path: str, copy: str) -> None:
    frames = [frame + b"\n\n" for frame in Path(copy).read_bytes().split(b"\n\n") if frame]

    async def serve(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        with suppress(ConnectionError):  # clients leave at the end event
            for frame in frames:
                await response.write(frame)
        return response

    app = web.Application()
    app.router.add_get("/", serve)
    web.run_app(app, path=path, print=lambda *_: print("serving", flush=True))


# --- delay ---------------------------------------------------------------------------------


def measure_delay(daemon: Daemon) -> None:
    """From the model's first text on its socket to the client's."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        sent: list[float] = []
        threading.Thread(target=be_slow_model, args=(listener, sent), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-bench"}
        info = daemon.create(daemon.home / "work", env=env, model="claude-sonnet-5-5")
        endpoint = Endpoint(info)
        delays = [first_text(endpoint) - sent[-1] for _ in range(PROMPTS)]
    row("model's first text to the client's", [1000 * delay for delay in delays])


def first_text(endpoint: Endpoint) -> float:
    with endpoint.stream("POST", "/runs", run_request("hello", "stream")) as events:
        for event in events:
            if event["type"] == "message.part":
                came = time.perf_counter()
                list(events)
                return came
    raise AssertionError("no text came")


def be_slow_model(listener: socket.socket, sent: list[float]) -> None:
    """Answers every request with a word, a moment after the rest, and notes when that left."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
    message |= {"model": "m", "stop_reason": None, "stop_sequence": None, "usage": usage}
    start = {"type": "content_block_start", "index": 0, "content_block": text("")}
    delta = {"type": "text_delta", "text": "word"}
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    before = [{"type": "message_start", "message": message}, start]
    first = [{"type": "content_block_delta", "index": 0, "delta": delta}]
    after = [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": usage},
        {"type": "message_stop"},
    ]
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += connection.recv(1 << 16)
            headers, _, body = asked.partition(b"\r\n\r\n")
            length = int(headers.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            while len(body) < length:
                body += connection.recv(1 << 16)
            if b"count_tokens" in headers:
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                continue
            connection.sendall(head.encode() + events(before))
            time.sleep(THINKS_S)
            sent.append(time.perf_counter())
            connection.sendall(events(first))
            connection.sendall(events(after))


def events(bodies: list[dict[str, Any]]) -> bytes:
    return b"".join(
        f"event: {body['type']}\ndata: {json.dumps(body)}\n\n".encode() for body in bodies
    )


# --- memory --------------------------------------------------------------------------------


def measure_memory(daemon: Daemon) -> None:
    """Growth of worker and daemon over the second half of a flood without clients, and of one whose
    clients take nothing: the conversation itself, which the worker must hold, grows in both."""
    with model_server(lambda _: Reply([text(WORD * FLOOD_EVENTS)])) as model:
        alone = flood(daemon, create(daemon, env=model.env), 0)
        stalled = flood(daemon, create(daemon, env=model.env), STALLED)
    for name, before, after in zip(("worker", "daemon"), alone, stalled, strict=True):
        single(f"{name}, from {FLOOD_MB // 2} to {FLOOD_MB} MB of events, no client", before, "MB")
        single(f"  with {STALLED} + {STALLED} that never read", after, "MB", before + FLAT_MB)


def flood(daemon: Daemon, info: dict[str, Any], clients: int) -> list[float]:
    """Growth of the private memory of worker and daemon over its second half, in MB."""
    assert daemon.process is not None
    endpoint, pids = Endpoint(info), (info["pid"], daemon.process.pid)
    used: list[list[float]] = []
    for until in (FLOOD_MB / 2, FLOOD_MB):
        while ring(daemon, endpoint)["dropped_bytes"] < until * 1e6:
            with ExitStack() as stack:  # those of the run before have lost their streams
                for _ in range(clients):
                    stack.enter_context(stalled_stream(endpoint))
                    stack.enter_context(stalled_subscriber(daemon, endpoint))
                endpoint.prompt("go")
        used.append([memory([pid])[0] for pid in pids])
    return [full - half for half, full in zip(*used, strict=True)]


def stalled_stream(endpoint: Endpoint) -> socket.socket:
    reader = socket.socket(socket.AF_UNIX)
    reader.connect(endpoint.path)
    path = f"/sessions/{endpoint.session_id}/events"
    reader.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return reader


def stalled_subscriber(daemon: Daemon, endpoint: Endpoint) -> socket.socket:
    control = socket.socket(socket.AF_UNIX)
    control.connect(str(daemon.socket))
    params = {"session_id": endpoint.session_id, "after": 0}
    call = {"jsonrpc": "2.0", "id": 1, "method": "session.subscribe", "params": params}
    control.sendall(json.dumps(call).encode() + b"\n")
    return control


def ring(daemon: Daemon, endpoint: Endpoint) -> dict[str, Any]:
    return daemon.call("session.status", session_id=endpoint.session_id)["ring"]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["clients", endpoint, path, count]:
            be_clients(endpoint, path, int(count))
        case ["bare", path, copy]:
            be_bare(path, copy)
        case _:
            main()
