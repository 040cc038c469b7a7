"""What one client is sent of the session, in order: events of the ring, and answers between them.

A feed is pulled by the stream that carries it and never waits: it has a cursor in the ring, so a
slow client costs the agent nothing. An answer stands behind every event that came before it was
given; that of a prompt, behind the `run_finished` of its run.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from typing import Any

from session_worker import transcript
from session_worker.core import SessionCore
from session_worker.http.acp_c import jsonrpc, translate
from session_worker.http.acp_c.jsonrpc import Id, Json
from session_worker.http.acp_c.methods import prompt_answer
from session_worker.http.acp_c.questions import ASK, Questions
from session_worker.http.acp_c.replay import Replay
from session_worker.http.acp_c.summary import session_title
from session_worker.http.acp_c.translate import View, session_update
from session_worker.run import Run
from session_worker.updates import Update, chunk
from sidecar.protocol import bounds, events
from sidecar.protocol.ring import CursorInFuture, Gap, RingReader

REPLAY_STEP = 64
"""Transcript records read between two looks at the loop: some hold images of megabytes."""

_KEPT = frozenset({None, ASK, jsonrpc.CANCEL})
"""Their methods, and the none of answers. Updates are in the ring; calls end with their stream."""

Outgoing = tuple[int | None, Json]
"""A message, with the number of the event it tells of if it is the last that does."""


class Lost(Exception):
    """A stream was so slow that events were overwritten. It ends; the next goes on behind them."""


class Feed:
    """`closed` is set with the answer to `session/close`."""

    def __init__(self, core: SessionCore, mint: Callable[[], str], *, notices: bool) -> None:
        """Begins behind the newest event."""
        self.questions = Questions(core, mint)
        self.closed = False
        self._lost = False
        self._core = core
        self._prompts: dict[str, Id] = {}
        self._own_runs: dict[str, None] = {}
        has_title = session_title(core) is not None
        self._view = View(notices=notices, own_runs=self._own_runs, titled=has_title)
        self._cursor = core.log.last_seq
        self._reader: RingReader | None = None
        self._outbox: deque[tuple[int, Outgoing]] = deque()
        self._kept: deque[tuple[int, Outgoing]] = deque(maxlen=bounds.FEED_MESSAGES_KEPT)
        """What was sent and is not in the ring, each behind the number before it."""
        self._last_number = self._cursor
        self._replay = Replay(core.spec.cwd)
        self._records: Iterator[transcript.Record] | None = None
        self._seam = 0
        self._closing: tuple[Id] | None = None
        self._pulling = asyncio.Lock()

    # --- what is to be sent ----------------------------------------------------------------

    @property
    def backlog(self) -> int:
        return len(self._outbox)

    @property
    def loading(self) -> bool:
        """Until the answer to `session/load` has been pulled."""
        return self._records is not None or self._cursor < self._seam

    @property
    def own_runs(self) -> list[str]:
        """Of this client's prompts, those without an answer yet."""
        return list(self._prompts)

    def send(self, message: Json) -> None:
        """In its place: behind the events of until now."""
        self._outbox.append((self._core.log.last_seq, (None, message)))

    def retract(self, message: Json) -> bool:
        """Take back what was sent, if no stream has pulled it yet."""
        kept = [item for item in self._outbox if item[1][1] is not message]
        is_here = len(kept) < len(self._outbox)
        self._outbox = deque(kept)
        return is_here

    def tell(self, *updates: Update) -> None:
        for update in updates:
            self.send(session_update(self._core.spec.session_id, update))

    def expect(self, run: Run, request_id: Id) -> None:
        """Answer that request when `run` has ended."""
        self._prompts[run.run_id] = request_id
        self._own_runs[run.run_id] = None
        if len(self._own_runs) > bounds.RUNS_KEPT:
            del self._own_runs[next(iter(self._own_runs))]

    def run_of(self, request_id: Id) -> Run | None:
        """The run that this client's request waits for."""
        run_ids = [run_id for run_id, asked in self._prompts.items() if asked == request_id]
        return self._core.find(run_ids[0]) if run_ids else None

    def ask_pending(self) -> None:
        """What waits for an answer, for a client that comes later than the question."""
        for message in self.questions.catch_up(self._core.log.last_seq):
            self.send(message)

    def load(self) -> None:
        """Begin again: with the transcript of until now, then what it does not cover, and then
        what is sent next. No event is left out at this seam, and none comes twice."""
        until = self._core.transcript.n
        self._replay = Replay(self._core.spec.cwd)
        records = transcript.read(self._core.spec.places["transcript"])
        self._records = takewhile(lambda record: record["n"] <= until, records)
        self._seam = self._core.log.last_seq
        self._kept.clear()

    def go_on_behind(self, seq: int) -> None:
        """Send again what comes behind event `seq`: its stream broke there. Each event comes once;
        what has no number may come twice, for nobody knows whether it came. Not while it loads: a
        load begins again instead."""
        if self.loading:
            return
        self.release()
        self._lost = False
        self._view.look_back(self._shown_until(seq))
        missed = [
            (behind if number is None else number, (number, message))
            for behind, (number, message) in self._kept
            if (behind >= seq if number is None else number > seq) and self._still_counts(message)
        ]
        self._outbox.extendleft(reversed(missed))
        self._cursor = self._last_number = seq
        self._kept.clear()
        self._outbox.extend((seq, item) for item in self._missed())

    def _shown_until(self, seq: int) -> Iterator[dict[str, Any]]:
        with self._core.log.reader_after(max(0, seq - bounds.FEED_LOOKED_BACK)) as reader:
            while batch := reader.read(bounds.RING_READ_BATCH):
                for item in batch:
                    if isinstance(item, Gap):
                        continue
                    if item.seq > seq:
                        return
                    yield json.loads(item.payload)

    def _still_counts(self, message: Json) -> bool:
        is_request = "method" in message and "id" in message
        return not is_request or self.questions.is_open(message["id"])

    def close(self, request_id: Id) -> None:
        """Answer that request when all prompts of the client have theirs; nothing follows."""
        self._closing = (request_id,)

    def release(self) -> None:
        """Let go of the ring until the next pull: nobody carries this feed now."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    # --- pulling ---------------------------------------------------------------------------

    async def pull(self) -> list[Outgoing]:
        """What comes next, a batch at most; nothing if there is nothing yet. Raises `Lost` behind
        a gap."""
        async with self._pulling:
            if self._lost:
                self._lost = False
                raise Lost
            batch = await self._next()
            self._keep(batch)
            return batch

    def _keep(self, batch: list[Outgoing]) -> None:
        for number, message in batch:
            if message.get("method") in _KEPT:
                self._kept.append((self._last_number, (number, message)))
            if number is not None:
                self._last_number = number

    async def _next(self) -> list[Outgoing]:
        while (records := self._records) is not None:
            step = await asyncio.to_thread(list, islice(records, REPLAY_STEP))
            if self._records is not records:
                continue  # another load began meanwhile
            if updates := [update for record in step for update in self._replay.feed(record)]:
                return self._told(updates)
            if not step:
                return self._end_replay() + self._pull_ring()
        return self._pull_ring()

    def _end_replay(self) -> list[Outgoing]:
        self._records = None
        covered = self._replay.seq
        self._cursor = self._seam if covered is None else min(covered, self._seam)
        self.release()
        return self._missed()

    def _pull_ring(self) -> list[Outgoing]:
        out: list[Outgoing] = []
        # what is missing at its beginning was not for this stream to read in time
        goes_on = self._reader is not None
        batch = self._open().read(bounds.RING_READ_BATCH)
        for item in batch:
            out += self._due(item.from_seq - 1 if isinstance(item, Gap) else item.seq - 1)
            if isinstance(item, Gap):
                out += self._gap(item)
                if goes_on:
                    self._lost = True
                    self.release()
                    return out
            else:
                self._cursor = item.seq
                out += _numbered(item.seq, self._event(json.loads(item.payload)))
        if batch:
            return out + self._due(self._cursor)
        self._cursor = self._core.log.last_seq  # a number without a record would be waited for
        out += self._due(self._cursor)
        if self._closing is not None and not self._prompts:
            out.append((None, jsonrpc.result(self._closing[0], {})))
            self.closed = True
        return out

    def _open(self) -> RingReader:
        if self._reader is None:
            try:
                self._reader = self._core.log.reader_after(self._cursor)
            except CursorInFuture:  # of a ring that was lost since
                self._cursor = self._core.log.last_seq
                self._reader = self._core.log.reader_after(self._cursor)
        return self._reader

    def _due(self, seq: int) -> list[Outgoing]:
        """The messages that stand behind event `seq` or an earlier one."""
        out: list[Outgoing] = []
        while self._outbox and self._outbox[0][0] <= seq:
            number, message = self._outbox.popleft()[1]
            # one that comes again, where its event is in a gap, must not send the cursor back
            out.append((None if number is None or number < self._cursor else number, message))
        return out

    def _event(self, envelope: dict[str, Any]) -> list[Json]:
        seq, run_id, data = envelope["seq"], envelope["run_id"], envelope["data"]
        match envelope["type"]:
            case events.PERMISSION_REQUESTED:
                return self.questions.asked(seq)
            case events.PERMISSION_RESOLVED:
                return self.questions.resolved(data.get("request_id"))
            case _:
                pass
        session_id = self._core.spec.session_id
        told = [session_update(session_id, u, seq) for u in self._view.updates(envelope)]
        ended = envelope["type"] == events.RUN_FINISHED and run_id in self._prompts
        return told + self._finished(run_id, data) if ended else told

    def _finished(self, run_id: str, told: Json) -> list[Json]:
        """The answer to the prompt of a run; `told` is its result as an event may have cut it."""
        run = self._core.find(run_id)
        outcome = run.result.to_wire() if run and run.result else told
        answer = prompt_answer(self._prompts.pop(run_id), run_id, outcome)
        text = outcome.get("final_text")
        if run is None or run.compact is None or not text or self._view.notices:
            return [answer]
        # a compaction says what it did in a notice, which this client does not take
        update = chunk("agent_message_chunk", text, run_id)
        return [session_update(self._core.spec.session_id, update), answer]

    def _gap(self, gap: Gap) -> list[Outgoing]:
        """Of what was overwritten: that it was, the questions that still wait, and answers."""
        calls = self._replay.open_calls() if self.loading else []
        self._cursor = gap.to_seq
        out = self._told([translate.gap(gap.from_seq, gap.to_seq), *calls])
        out += ((None, message) for message in self.questions.catch_up(gap.to_seq))
        return out + self._missed()

    def _missed(self) -> list[Outgoing]:
        """Answers to prompts whose runs ended in events that are not read."""
        out: list[Outgoing] = []
        for run_id in self.own_runs:
            run = self._core.find(run_id)
            if run is None or (run.finished_seq is not None and run.finished_seq <= self._cursor):
                out += ((None, message) for message in self._finished(run_id, {}))
        return out

    def _told(self, updates: list[Update]) -> list[Outgoing]:
        return [(None, session_update(self._core.spec.session_id, update)) for update in updates]


def _numbered(seq: int, messages: list[Json]) -> list[Outgoing]:
    """Of what tells of one event, the last has its number: whoever has seen that has seen all."""
    return [(seq if message is messages[-1] else None, message) for message in messages]
