"""Who acts in the chaos soak: clients that prompt, readers that follow, one that resumes, one that
kills.

Each of them meets broken connections, for that is what kills cause; whatever else it meets and no
kill explains goes into `complaints`, which the test wants empty.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import psutil

from tests.support.control import Control
from tests.support.daemon import Daemon
from tests.support.endpoint import Connection, Endpoint, run_request

BROKEN = (ConnectionError, FileNotFoundError, http.client.HTTPException, EOFError)
"""What a killed peer looks like. A timeout is not among them: nobody may be left waiting."""
PAUSE_S = 0.05
"""Of whoever met a broken connection, before the next try."""
PATIENCE_S = 20.0
"""For the end of one run; a session may be lost and resumed meanwhile."""
ENDED = {"completed", "failed", "cancelled"}
RESUMABLE = {"lost", "failed", "exited"}
REASONS = {"lost", "worker_crashed", "destroyed"}
VICTIMS = (*["worker"] * 12, *["tool"] * 6, *["shim"] * 2, "zygote", "daemon")
"""Shuffled and dealt, so that no run goes without one of them. More of the dear ones, whose return
takes seconds, would leave too little alive to be killed under load."""

PROMPTS = (
    "tell me about {m}",
    "run `echo {m} >> effects`",
    "run `echo {m} >> effects; sleep 0.7; echo later`",
    "run `echo {m} >> effects; sleep 600 & sleep 0.1`",
    "run `echo {m} >> effects; seq 20000; sleep 600 &`",
    "run `echo {m}a >> effects` and run `echo {m}b >> effects`",
    "run `echo {m}a >> effects`, then run `sleep 0.2; echo {m}b >> effects`",
    "!big 10k {m}",
    "!slow 100tps {m}",
)
"""What the clients ask for; `{m}` is unique, and each `echo` must happen once or not at all."""


class Actor(threading.Thread):
    """Repeats `act` until it is told to end."""

    def __init__(self, name: str, complaints: list[str]) -> None:
        super().__init__(name=name, daemon=True)
        self._complaints = complaints
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            try:
                self.act()
            except BROKEN:
                self._over.wait(PAUSE_S)
            except Exception as error:  # noqa: BLE001 - whatever it is, the test must hear of it
                self.complain(repr(error))
                return

    def act(self) -> None:
        raise NotImplementedError

    def complain(self, what: str) -> None:
        self._complaints.append(f"{self.name}: {what}")

    def end(self) -> None:
        self._over.set()


@contextmanager
def acting(*actors: Actor) -> Generator[None]:
    for actor in actors:
        actor.start()
    try:
        yield
    finally:
        for actor in actors:
            actor.end()
        for actor in actors:
            actor.join()


@dataclass
class Sent:
    """A prompt. Without `run_id` nobody knows whether it was accepted."""

    marker: str
    run_id: str | None = None
    cancelled: bool = False
    seen: dict[str, Any] = field(default_factory=dict[str, Any])
    """The run, as it was shown after its end."""


class Client(Actor):
    """Prompts one session, in all modes, and sometimes cancels."""

    def __init__(self, number: int, endpoint: Endpoint, seed: int, complaints: list[str]) -> None:
        super().__init__(f"client {number}", complaints)
        self._number = number
        self._endpoint = endpoint
        self._random = random.Random(f"{seed}.{number}")
        self.sent: list[Sent] = []

    def act(self) -> None:
        sent = Sent(f"m{self._number}-{len(self.sent):05}")
        self.sent.append(sent)
        prompt = self._random.choice(PROMPTS).format(m=sent.marker)
        self._prompt(sent, run_request(prompt, self._random.choice(("async", "async", "stream"))))
        if sent.run_id is None or self._random.random() < 0.3:
            return  # the next one queues behind it
        if self._random.random() < 0.1:
            self._over.wait(self._random.uniform(0, 0.5))
            self._cancel(sent)
        self._await_end(sent)

    def _prompt(self, sent: Sent, body: dict[str, Any]) -> None:
        with self._endpoint.request("POST", "/runs", body) as response:
            if response.status in (200, 202):
                sent.run_id = response.headers["Run-ID"]
                response.read()
            elif response.status == 409:
                self._over.wait(PAUSE_S)
            else:
                self.complain(f"{sent.marker} got {response.status}: {response.read()!r}")

    def _cancel(self, sent: Sent) -> None:
        sent.cancelled = True
        status, answer = self._endpoint.post(f"/runs/{sent.run_id}/cancel")
        if status not in (202, 403):  # 403: it has ended by itself
            self.complain(f"the cancel of {sent.marker} got {status}: {answer}")

    def _await_end(self, sent: Sent) -> None:
        for _ in range(int(PATIENCE_S / PAUSE_S)):
            with suppress(*BROKEN):
                status, run = self._endpoint.get(f"/runs/{sent.run_id}")
                if status != 200:
                    self.complain(f"{sent.marker} was accepted, and then {status}: {run}")
                    return
                if run["status"] in ENDED:
                    sent.seen = run
                    return
            if self._over.wait(PAUSE_S):
                return


class Follower(Actor):
    """Reads one session's events with a cursor; complains of a number that is not the next.

    With `pause_s` it comes by that often and takes what there is; else it stays connected.
    """

    def __init__(
        self, number: int, endpoint: Endpoint, pause_s: float, complaints: list[str]
    ) -> None:
        super().__init__(f"follower {number}", complaints)
        self._path = f"/sessions/{endpoint.session_id}/events" + "?follow=0" * (pause_s > 0)
        self._pause_s = pause_s
        self._connection = Connection(endpoint.path)
        self.last_seq = 0
        self.seen: dict[int, int] = {}
        """The digest of each event, by number."""
        self.gaps: list[tuple[int, int]] = []
        self.finished: Counter[str] = Counter()

    def act(self) -> None:
        with closing(self._connection):
            self._connection.request(
                "GET", self._path, headers={"Last-Event-ID": f"{self.last_seq}"}
            )
            response = self._connection.getresponse()
            if response.status != 200:
                raise AssertionError(f"{response.status}: {response.read()!r}")
            fields: dict[bytes, bytes] = {}
            for line in response:
                name, separator, value = line.rstrip(b"\n").partition(b": ")
                if name and separator:
                    fields[name] = value
                elif line == b"\n" and b"id" in fields:
                    self._take(fields)
                    fields = {}
        self._over.wait(self._pause_s)

    def _take(self, fields: dict[bytes, bytes]) -> None:
        data = json.loads(fields[b"data"])
        is_gap = fields[b"event"] == b"gap"
        first, last = (data["from"], data["to"]) if is_gap else (data["seq"], data["seq"])
        if first != self.last_seq + 1 or last < first or int(fields[b"id"]) != last:
            raise AssertionError(f"after {self.last_seq} came {fields}")
        if is_gap:
            self.gaps.append((first, last))
        else:
            self.seen[first] = digest(data)
            self.finished[data["run_id"]] += data["type"] == "run_finished"
        self.last_seq = last

    def end(self) -> None:
        super().end()
        if sock := self._connection.sock:
            with suppress(OSError):
                sock.shutdown(2)


def digest(event: dict[str, Any]) -> int:
    return crc32(json.dumps(event, sort_keys=True).encode())


class Resumer(Actor):
    """Looks at all sessions through the daemon, and resumes those that ended, all at once."""

    def __init__(self, socket: Path, session_ids: set[str], complaints: list[str]) -> None:
        super().__init__("resumer", complaints)
        self._socket = socket
        self._session_ids = session_ids
        self.resumed: Counter[str] = Counter()

    def act(self) -> None:
        with closing(Control(self._socket)) as control:
            listed = control.call("session.list", all=True)["sessions"]
            if forgotten := self._session_ids - {info["session_id"] for info in listed}:
                self.complain(f"not listed: {forgotten}")
            ended = [info for info in listed if info["state"] in RESUMABLE]
            for info in ended:
                self.resumed[info["state"]] += 1
                if info["state"] != "lost" and not was_killed(info["exit"]):
                    self.complain(f"nobody killed it: {info}")
                params = {"session_id": info["session_id"]}
                control.send(
                    {"jsonrpc": "2.0", "id": 1, "method": "session.resume", "params": params}
                )
            for _ in ended:
                self._judge(control.receive())
        self._over.wait(PAUSE_S)

    def _judge(self, reply: dict[str, Any]) -> None:
        if "error" in reply:
            data = reply["error"]["data"]
            how = data.get("exit")
            self.resumed[data["code"]] += 1
            if data["code"] != "start_failed" or (how and not was_killed(how)):
                self.complain(f"{reply}")


def was_killed(how: dict[str, Any] | None) -> bool:
    """Nothing here ends by itself. A start is given up, and the session ended, if a kill came
    between the worker's first word and its health check."""
    return how is not None and how["code"] in (None, 0) and how["reason"] in REASONS


class Killer:
    """SIGKILLs what belongs to the sessions of one daemon, and that daemon."""

    def __init__(self, daemon: Daemon, chance: random.Random) -> None:
        self._daemon = daemon
        self.chance = chance
        self._next: list[str] = []
        self._shims: list[psutil.Process | None] = []
        self.killed: Counter[str] = Counter()

    def strike(self) -> None:
        """One kill, or the daemon's with some more while it is down."""
        listed = self._daemon.call("session.list", all=True)["sessions"]
        self._shims = [_process(info["shim_pid"]) for info in listed]
        if not self._next:
            self._next = self.chance.sample(VICTIMS, len(VICTIMS))
        kind = self._next.pop()
        if kind == "zygote":
            self._kill(kind, _process(self._daemon.call("sidecar.status")["zygote"]["pid"]))
        elif kind != "daemon":
            self._kill_of_a_session(kind)
        else:
            self._daemon.kill()
            self.killed[kind] += 1
            for _ in range(self.chance.randrange(4)):
                self._kill_of_a_session(self.chance.choice(VICTIMS[:-2]))
            self._daemon.start()

    def _kill_of_a_session(self, kind: str) -> None:
        # any session, also one that has nothing to kill: else who has just come up is hit next
        shim = self.chance.choice(self._shims)
        if kind == "shim" or shim is None:
            self._kill(kind, shim)
            return
        with suppress(psutil.NoSuchProcess):
            below = shim.children(recursive=True)
            found = [p for p in below if p.name().startswith("sidecar-") is (kind == "worker")]
            self._kill(kind, self.chance.choice(found or [None]))

    def _kill(self, kind: str, process: psutil.Process | None) -> None:
        if process is not None:
            with suppress(psutil.NoSuchProcess):
                process.kill()
                self.killed[kind] += 1


def _process(pid: int | None) -> psutil.Process | None:
    try:
        return psutil.Process(pid) if pid else None
    except psutil.NoSuchProcess:
        return None
