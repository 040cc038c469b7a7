"""One ACP-C client: what it can do, its streams, and which of them carries what.

Over a WebSocket everything goes one way. Over HTTP there are two streams: answers that belong to
no session go over the connection's, the session's feed over the session's own. Until a client that
has loaded, resumed or simply prompted opens that one, its feed goes over the connection's as well
(acp.md §3.5, rules 4 to 6). A connection that ends, ends nothing else.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections import deque
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial

from session_worker.core import SessionCore
from session_worker.editor import Editor
from session_worker.http.acp_c.calls import Calls
from session_worker.http.acp_c.capabilities import offered, takes_notices
from session_worker.http.acp_c.feed import Feed, Outgoing
from session_worker.http.acp_c.jsonrpc import Answer, Json
from sidecar.protocol import bounds

BACKLOG_MESSAGES = 256
"""Answers that may wait for a client which does not take any; then its requests are refused.
Events do not wait here: they are in the ring."""


class Overloaded(Exception):
    """`BACKLOG_MESSAGES` answers already wait for this client."""


class Connection:
    """`feed` is there while the client is attached to the session."""

    def __init__(self, core: SessionCore, *, single_stream: bool) -> None:
        self.id = uuid.uuid4().hex
        self.core = core
        self.client: Json | None = None
        """Its capabilities; None before `initialize`."""
        self.feed: Feed | None = None
        self.created = False
        """It has had the one session of this endpoint from `session/new`."""
        self.closed = False
        self.used_at = time.monotonic()
        self.single_stream = single_stream
        self.streams: dict[str | None, object] = {}
        """What carries each: by session id, and None for what belongs to the connection."""
        self._via_connection = single_stream
        self._session_ended = False
        """The session's stream has been open, and may be again."""
        self._broke_off = False
        """The stream that carried the feed has ended, and none has taken its place."""
        self._outbox: deque[Json] = deque()
        self._posts: set[Feed] = set()
        self._numbers = itertools.count(1)
        self._bell = asyncio.Event()
        self._attending = ExitStack()
        self._attends = False
        self._calls = Calls(self._mint, self.ring)

    # --- what the client says --------------------------------------------------------------

    def check_room(self) -> None:
        """Raises `Overloaded`."""
        if len(self._outbox) + (self.feed.backlog if self.feed else 0) >= BACKLOG_MESSAGES:
            raise Overloaded

    def attach(self, *, created: bool = False) -> Feed:
        """The client's feed, which begins now if there is none; `created` by `session/new`, after
        which a client opens the session's stream."""
        if self.feed is None:
            self.feed = self._new_feed()
            self._via_connection = self.single_stream or not (created or self._session_open)
        elif self._session_ended and not self._session_open:
            self._via_connection = True  # the Python SDK opens it again when it hears of it
        self._reattend()
        return self.feed

    @property
    def feeds(self) -> list[Feed]:
        """All that the client is sent of the session: by its streams, and by single requests."""
        return [*self._posts, *([self.feed] if self.feed else [])]

    def settle(self, answer: Answer) -> None:
        """Take an answer to a request of ours; by its id, whichever way it came."""
        for feed in self.feeds:
            feed.questions.settle(answer)
        self._calls.settle(answer)
        self._reattend()

    def send(self, message: Json) -> None:
        """An answer that belongs to no session."""
        self._outbox.append(message)

    def ring(self) -> None:
        """There is something to send, or a reason to look."""
        self._bell.set()
        self._bell = asyncio.Event()

    def close(self) -> None:
        """Let its streams end; what they started goes on."""
        self.closed = True
        for feed in self.feeds:
            self._calls.fail(feed)
        self.ring()

    # --- what it is asked ------------------------------------------------------------------

    def editor(self, feed: Feed) -> Editor:
        """The client, for the tools of a run that it has asked for over `feed`."""

        def show(update: Json) -> None:
            feed.tell(update)
            self.ring()

        return Editor(
            self.core.spec.session_id,
            offered(self.client or {}),
            partial(self._reaches, feed),
            partial(self._calls.ask, feed),
            partial(self.core.notice, "warning"),
            show,
        )

    def _reaches(self, feed: Feed) -> bool:
        """Whether its client is there, or is only about to open the stream."""
        is_carried = feed in self._posts or (feed is self.feed and not self._broke_off)
        return is_carried and not self.closed

    # --- what it is sent -------------------------------------------------------------------

    async def pull(self, name: str | None) -> list[Outgoing]:
        """What is next for that stream; nothing if there is nothing yet. Raises `Lost`."""
        if name is None:
            if self._outbox:
                waiting, self._outbox = self._outbox, deque()
                return [(None, message) for message in waiting]
            self._hand_over()
            return await self._pull_feed() if self._via_connection else []
        if name != self.core.spec.session_id:
            return []  # a stream of no session of ours stays silent (acp.md §3.5, rule 3)
        if None not in self.streams:
            self._hand_over()
        return [] if self._via_connection else await self._pull_feed()

    def go_on_behind(self, name: str | None, seq: int) -> None:
        """Whoever opens that stream has seen the session's events up to `seq`, and no later one."""
        if self.feed is not None and name in (self._carrying, self.core.spec.session_id):
            self.feed.go_on_behind(seq)

    async def _pull_feed(self) -> list[Outgoing]:
        feed = self.feed
        out = [] if feed is None else await feed.pull()
        if feed is not None and feed.closed and feed is self.feed:
            feed.release()
            self._calls.fail(feed)
            self.feed = None
            self._reattend()
        return out

    def _hand_over(self) -> None:
        """To the session's stream, once what was begun on the connection's has been sent there."""
        loading = self.feed is not None and self.feed.loading
        if self._via_connection and not self.single_stream and self._session_open and not loading:
            self._via_connection = self._broke_off = False
            self.ring()

    async def wait(self, timeout_s: float) -> bool:
        """True when the bell rang, False after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._bell.wait()
        except TimeoutError:
            return False
        return True

    async def listen(self) -> None:
        """Ring whenever something happens in the session; until its events end."""
        log, heard = self.core.log, 0
        while not log.ended:
            if await log.wait_beyond(heard, bounds.SSE_KEEPALIVE_S):
                heard = log.last_seq
                self.ring()

    # --- its streams -----------------------------------------------------------------------

    @contextmanager
    def stream(self, name: str | None, carrier: object) -> Generator[None]:
        """While `carrier` is the stream of that session, or with None the connection's. Another
        may take its place: it has gone on once `carried_by` is false."""
        self.streams[name] = carrier
        self._broke_off &= name != self._carrying
        self._reattend()
        try:
            yield
        finally:
            if self.carried_by(name, carrier):
                del self.streams[name]
                self._session_ended |= name == self.core.spec.session_id
                if name == self._carrying and self.feed is not None:
                    self._broke_off = True
                    self._calls.fail(self.feed)
            self.used_at = time.monotonic()
            if self.feed is not None and not self.streaming:
                self.feed.release()
            self._reattend()

    def carried_by(self, name: str | None, carrier: object) -> bool:
        return self.streams.get(name) is carrier

    @contextmanager
    def post_stream(self) -> Generator[Feed]:
        """A feed of its own for one request."""
        feed = self._new_feed()
        self._posts.add(feed)
        try:
            with self.core.attendance.attached():
                yield feed
        finally:
            self._posts.discard(feed)
            self._calls.fail(feed)
            feed.release()

    @property
    def streaming(self) -> bool:
        return bool(self.streams)

    @property
    def _carrying(self) -> str | None:
        """The name of the stream that carries the feed."""
        return None if self._via_connection else self.core.spec.session_id

    @property
    def _session_open(self) -> bool:
        return self.core.spec.session_id in self.streams

    def _new_feed(self) -> Feed:
        notices = takes_notices(self.client or {})
        return Feed(self.core, self._mint, notices=notices)

    def _mint(self) -> str:
        return f"sidecar-{next(self._numbers)}"

    def _reattend(self) -> None:
        """Be somebody whom the session could ask, or not, as things are now."""
        attends = self.streaming and self.feed is not None and self.feed.questions.able
        if attends and not self._attends:
            self._attending.enter_context(self.core.attendance.attached())
        elif self._attends and not attends:
            self._attending.close()
        self._attends = attends
