"""The shim: parent of one session's worker; it runs no agent code and needs no daemon.

It owns the session's listening sockets, starts the worker, restarts it after a crash, wakes it
from sleep on the first connection, keeps its last word and passes it to whoever connects, ends the
whole tree, and writes the exit record. One select loop, one thread, no event loop
(supervision.md §0).

Links are line streams (`LineSocket`). Daemon to shim: `{"op":"start","spec":{…}}` once, then
`{"op":"stop","grace_s":s}`. Shim to daemon: `{"word":{…}}` on connecting and after each change.
Worker to shim: `{"report":{…}}`, members of the word that the worker knows.
"""

from __future__ import annotations

import os
import random
import selectors
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from session_worker import child, process_tree, restart
from session_worker.grants import Grants
from session_worker.limits import Limits, Watch
from session_worker.line_socket import LineSocket
from session_worker.loopback import Loopback
from session_worker.worker_log import WorkerLog
from session_worker.worker_start import StartWorker, hand_over
from sidecar.protocol import bounds, cgroup, prctl
from sidecar.protocol.events import now_iso
from sidecar.protocol.files import write_json
from sidecar.protocol.peer import SHIM_NAME, is_of_a_session, is_ours

REPORTED = frozenset(
    {
        "state",
        "model",
        "incarnation",
        "run",
        "usage",
        "mode",
        "sandbox",
        "last_result",
        "last_active_at",
    }
)
"""Members of the word that the worker reports; the others are the shim's own knowledge."""


class Shim:
    """One session. `run` returns when nothing of it is left but this process."""

    def __init__(self, grants: Grants, start_worker: StartWorker) -> None:
        self._grants = grants
        self._start_worker = start_worker
        self._selector = selectors.DefaultSelector()
        self._signals = socket.socketpair()
        self._log = WorkerLog()
        self._links: list[LineSocket] = []
        self._spec: dict[str, Any] | None = None
        self._worker: LineSocket | None = None
        self._stop_by: float | None = None
        self._worker_code: int | None = None
        self._start_at: float | None = None
        self._cgroup: str | None = None
        self._tcp: Loopback | None = None
        self._limits = Watch(Limits())
        self._files_due: float | None = None
        self._crashes: list[float] = []
        self._was_up = False
        self._falls_asleep = False
        self._restart_reason: str | None = None
        self._word: dict[str, Any] = {
            "state": "starting",
            "shim_pid": os.getpid(),
            "pid": None,
            "incarnation": 0,
            "restarts": 0,
            "started_at": None,
            "exit": None,
        }

    def run(self) -> None:
        prctl.become_subreaper()
        prctl.set_name(SHIM_NAME)
        prctl.hide_memory()
        self.serve()

    def serve(self) -> None:
        """`run` but for what the process is; leaves no descriptor open."""
        self._hear_signals()
        self._grants.control.setblocking(False)
        self._watch(self._grants.control, self._accept)
        self._selector.register(self._log.reader, selectors.EVENT_READ, self._copy_log)
        birth_link = self._add_link(self._grants.link)
        while self._word["exit"] is None:
            self._wait(self._next_moment())
            process_tree.reap(self._on_reaped)
            if self._spec is None and birth_link.closed:
                break  # the daemon died before it said what to run
            self._act()
        self._linger()
        self._close()

    def _next_moment(self) -> float | None:
        """When something is due without anybody asking for it (monotonic)."""
        if self._worker_code is not None:
            return 0.0  # also of a worker that could not be forked, which no signal reports
        moments = (self._stop_by or self._start_at, self._limits.due, self._files_due)
        return min((moment for moment in moments if moment is not None), default=None)

    def _act(self) -> None:
        """The one step that follows from what is known now."""
        over = self._limits.look(self._word["pid"], now=self._worker_code is not None)
        if self._stop_by is not None:
            down = self._word["pid"] is None or self._worker_code is not None
            if down or over is not None or self._past(self._stop_by):
                self._finish("destroyed")
        elif over is not None:
            self._finish(over)
        elif self._files_are_gone():
            self._finish("files_deleted")
        elif self._worker_code is not None:
            self._on_worker_gone(self._worker_code)
        elif self._start_at is not None and self._past(self._start_at):
            self._start_worker_now()

    def _files_are_gone(self) -> bool:
        """Look if it is due. A session without its directory is out of everybody's reach: its home
        was deleted under it."""
        if self._spec is None or self._files_due is None or not self._past(self._files_due):
            return False
        self._files_due = time.monotonic() + bounds.FILES_CHECK_S
        return not Path(self._spec["places"]["exit"]).parent.exists()

    # --- the select loop -------------------------------------------------------------------

    def _hear_signals(self) -> None:
        """Their numbers come through a pair of sockets, one byte each."""
        for end in self._signals:
            end.setblocking(False)
        heard, hears = self._signals
        signal.set_wakeup_fd(hears.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, _heard)
        self._watch(heard, self._on_signals)

    def _on_signals(self, wake: socket.socket) -> None:
        if signal.SIGTERM in wake.recv(4096):
            self._stop(bounds.DESTROY_GRACE_DEFAULT_S)

    def _watch(self, sock: socket.socket, act: Callable[[socket.socket], object]) -> None:
        self._selector.register(sock, selectors.EVENT_READ, act)

    def _wait(self, until: float | None) -> None:
        """Serve what is ready; sleep at most until `until` (monotonic)."""
        for link in [link for link in self._links if link.closed]:
            self._selector.unregister(link.sock)
            self._links.remove(link)
        for link in self._links:
            wanted = selectors.EVENT_WRITE if link.wants_write else 0
            act = self._selector.get_key(link.sock).data
            self._selector.modify(link.sock, selectors.EVENT_READ | wanted, act)
        patience = None if until is None else max(0.0, until - time.monotonic())
        for key, mask in self._selector.select(patience):
            if mask & selectors.EVENT_READ:
                key.data(key.fileobj)
        for link in self._links:
            link.flush()

    def _copy_log(self, _: object = None) -> None:
        self._log.copy(Path(self._spec["places"]["worker_log"]) if self._spec else None)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            if is_ours(connection) and not is_of_a_session(connection, beside=os.getpid()):
                self._add_link(connection).tell(self._told())
            else:
                connection.close()

    def _add_link(self, sock: socket.socket) -> LineSocket:
        link = LineSocket(sock)
        self._links.append(link)
        self._watch(sock, lambda _: self._on_messages(link))
        return link

    # --- what the links say ----------------------------------------------------------------

    def _on_messages(self, link: LineSocket) -> None:
        for message in link.receive():
            match message:
                case {"report": report} if link is self._worker:
                    self._on_report(report)
                case {"op": "start", "spec": spec} if self._spec is None:
                    self._start(spec)
                case {"op": "stop", "grace_s": int() | float() as grace_s}:
                    self._stop(grace_s)
                case _:
                    link.close()  # whoever speaks so is no daemon of ours

    def _start(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._cgroup = spec["cgroup"]
        if self._cgroup is not None:
            cgroup.remove(self._cgroup)  # its counters belong to an earlier life
        self._limits = Watch(Limits.from_wire(spec["limits"]), self._cgroup)
        self._files_due = time.monotonic() + bounds.FILES_CHECK_S
        self._word["incarnation"] = spec["incarnation"]
        self._start_worker_now()

    def _start_worker_now(self) -> None:
        """A new incarnation, or another crash if the system will not have it."""
        assert self._spec is not None, "a worker is started for a specification"
        self._start_at = None
        self._word["incarnation"] += 1
        try:
            self._limits.make_group()
            if self._tcp is None and self._spec.get("tcp") is not None:
                self._tcp = Loopback.open()
            self._word["pid"], link = self._start_worker()
        except OSError as error:
            os.write(2, f"no worker could be started: {error}\n".encode())
            self._worker_code = child.CRASHED
            return
        self._word["started_at"] = now_iso()
        hand_over(link, self._listeners(), self._log.writer)
        self._worker = self._add_link(link)
        self._worker.send(
            {
                **self._spec,
                "incarnation": self._word["incarnation"],
                "restart_reason": self._restart_reason,
                "shim_pid": os.getpid(),
                "tcp": self._tcp and self._tcp.to_spec(self._spec["tcp"]),
            }
        )
        self._tell()

    def _listeners(self) -> list[socket.socket]:
        return [self._grants.endpoint, *([self._tcp.listener] if self._tcp else [])]

    def _on_report(self, report: dict[str, Any]) -> None:
        self._was_up = True
        news = {k: v for k, v in report.items() if k in REPORTED}
        if "state" in news:
            self._falls_asleep = news["state"] == "sleeping"
        if self._falls_asleep or self._stop_by is not None:
            news.pop("state", None)  # it sleeps once its process has gone
        self._word |= news
        self._tell()

    def _tell(self) -> None:
        for link in self._links:
            if link is not self._worker:
                link.tell(self._told())

    def _told(self) -> dict[str, Any]:
        """The word with what is only told and never written: the exit record has no token."""
        return {"word": {**self._word, "tcp": self._tcp and self._tcp.to_word()}}

    # --- a worker that has gone ------------------------------------------------------------

    def _on_worker_gone(self, code: int) -> None:
        if self._worker is not None:
            self._on_messages(self._worker)  # its last report may have come with its end
        asleep, self._falls_asleep = code == 0 and self._falls_asleep, False
        self._word |= {"pid": None, "run": None}
        self._worker_code = None
        if asleep:
            self._word["state"] = "sleeping"
            for listener in self._listeners():
                self._watch(listener, self._wake)
            self._tell()
            return
        self._crashes = restart.recent(self._crashes, time.monotonic())
        pause = restart.back_off(len(self._crashes), random.uniform(0.8, 1.2))
        # what the crashed one left behind could answer for the new one, or fill the machine
        if pause is None or not self._was_up or not self._kill_tree():
            self._worker_code = code
            self._finish("worker_crashed")
            return
        self._start_at = time.monotonic() + pause
        self._restart_reason = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._word["restarts"] += 1
        self._word["state"] = "restarting"
        self._tell()

    def _wake(self, _: socket.socket) -> None:
        """Somebody connects to a sleeping session; the worker will find the connection queued."""
        if self._word["state"] != "sleeping":
            return  # the other socket has just woken it, or it is being ended
        for listener in self._listeners():
            self._selector.unregister(listener)
        self._word["state"] = "starting"
        self._restart_reason = None
        self._start_worker_now()

    # --- the end ---------------------------------------------------------------------------

    def _stop(self, grace_s: float) -> None:
        by = time.monotonic() + grace_s
        self._stop_by = by if self._stop_by is None else min(by, self._stop_by)
        self._word["state"] = "stopping"
        if self._word["pid"] is not None and self._worker_code is None:
            with suppress(ProcessLookupError):
                os.kill(self._word["pid"], signal.SIGTERM)
        self._tell()

    @staticmethod
    def _past(moment: float) -> bool:
        return time.monotonic() >= moment

    def _on_reaped(self, pid: int, code: int) -> None:
        if pid == self._word["pid"]:
            self._worker_code = code

    def _kill_tree(self) -> bool:
        return process_tree.kill_all(self._on_reaped, self._cgroup)

    def _finish(self, reason: str) -> None:
        """End what is left of the tree, then write the exit record, then say so."""
        gone = self._kill_tree()
        if gone and self._cgroup is not None:
            cgroup.remove(self._cgroup)
        self._copy_log()
        code = self._worker_code
        self._word |= {
            "state": "exited" if gone and reason == "destroyed" else "failed",
            "pid": None,
            "run": None,
            "exit": {
                "code": code if code is not None and code >= 0 else None,
                "signal": -code if code is not None and code < 0 else None,
                "reason": reason if gone else "survivors",
                "at": now_iso(),
            },
        }
        places = (self._spec or {}).get("places", {})
        if places:
            with suppress(OSError):  # on a full disk the word must still be told
                write_json(Path(places["exit"]), {**self._word["exit"], "word": self._word})
            for name in ("endpoint", "control", "model"):
                Path(places[name]).unlink(missing_ok=True)
        if self._tcp is not None:
            self._tcp.listener.close()
            self._tcp = None
        self._tell()

    def _linger(self) -> None:
        """Let whoever listens take the last word, for a bounded time."""
        until = time.monotonic() + bounds.SHIM_REPLY_S
        while any(link.wants_write for link in self._links) and time.monotonic() < until:
            self._wait(until)

    def _close(self) -> None:
        """For a process that goes on, as the zygote's does after a rehearsal."""
        signal.set_wakeup_fd(-1)
        watched = [key.fileobj for key in self._selector.get_map().values()]
        self._selector.close()
        self._log.close()
        for sock in (*watched, *self._signals, self._grants.endpoint):
            if isinstance(sock, socket.socket):
                sock.close()


def _heard(_number: int, _frame: object) -> None:
    """A handler must exist for the wake-up descriptor to be written; the loop acts on that."""
