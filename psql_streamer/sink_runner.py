"""A sink at work: its handlers, their threads, and the queues between them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from psql_streamer.backoff import Backoff
from psql_streamer.errors import Outcome, StreamerError, outcome
from psql_streamer.inbox import Inbox
from psql_streamer.interfaces import Handler, Sink, Status
from psql_streamer.merging import cut, merge
from psql_streamer.metrics import Metrics
from psql_streamer.model import Batch, Stats
from psql_streamer.supervisor import Supervisor

_POLL = 0.2
_PIECE_ROWS = 10_000
"""What was merged for a handler goes on in pieces of so many rows: encoded, a row takes several times its size."""

_LAST_WORD = 5.0
"""Seconds that threads get to end after they were interrupted."""

log = logging.getLogger("psql_streamer.pipeline")


@dataclass(frozen=True, slots=True)
class Item:
    """A batch on its way to one sink; tickets: its numbers at the source's tracker, several when it was merged."""

    batch: Batch
    tickets: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """What the batch holds in memory."""
        return self.batch.nbytes


class SinkRunner:
    """One thread a handler, in order, and one that writes; a bounded inbox before each.

    on_done: called when an item is durable, with this sink's name. retry_interval: source name -> first pause before
    an item is tried again.
    """

    def __init__(
        self,
        part: Sink,
        handlers: Sequence[Handler],
        metrics: Metrics,
        supervisor: Supervisor,
        on_done: Callable[[Item, str], None],
        retry_interval: Callable[[str], float],
    ) -> None:
        self.name = f"sink.{part.name}"
        self.part = part
        self.handlers = handlers
        self._metrics = metrics
        self._supervisor = supervisor
        self._on_done = on_done
        self._retry_interval = retry_interval
        self._problems: dict[int, str] = {}
        self._drained = threading.Event()  # nothing more comes: threads end when their inbox is empty
        self._abandon = threading.Event()
        at_once = [handler.batches_at_once for handler in handlers]
        self._inboxes = [Inbox[Item](part.options.queue_bytes, most) for most in (*at_once, 1)]
        self._threads = [
            threading.Thread(target=self._handle, args=(place,), name=f"{self.name} {handler.name}", daemon=True)
            for place, handler in enumerate(handlers)
        ]
        self._threads.append(threading.Thread(target=self._deliver, name=self.name, daemon=True))

    def start(self) -> None:
        """Start the handlers' engines and the sink, then the threads."""
        for handler in self.handlers:
            self._supervisor.start(f"handler.{handler.name}", handler.start, 1.0)
        self._supervisor.start(self.name, self.part.start, 1.0)
        for thread in self._threads:
            thread.start()

    def take(self, item: Item) -> bool:
        """Queue a batch; waits while the queue is full. False: the service is stopping, and it was not taken."""
        return self._inboxes[0].put(item, self._supervisor.stopping)

    def close(self, deadline: float) -> None:
        """Let the threads finish what is queued, until the deadline."""
        self._drained.set()
        self._join(deadline)
        if any(thread.is_alive() for thread in self._threads):
            log.warning("%s: not drained in time: the rest will be read again after the restart", self.name)
        self._abandon.set()
        self.part.interrupt()
        self._join(time.monotonic() + _LAST_WORD)
        self.part.stop()
        for handler in self.handlers:
            handler.stop()

    def status(self) -> Status:
        """The sink's own status, or what is being tried again."""
        problems = list(self._problems.values())
        return Status(False, "; ".join(problems)) if problems else self.part.status()

    def stats(self) -> Stats:
        """The sink's counters and its queue."""
        used, limit = sum(inbox.used for inbox in self._inboxes), sum(inbox.limit for inbox in self._inboxes)
        return {**self.part.stats(), "queue_bytes": used, "queue_limit_bytes": limit}

    def _handle(self, place: int) -> None:
        handler, following = self.handlers[place], self._inboxes[place + 1]

        def transform(item: Item) -> None:
            began = time.monotonic()
            batch = handler.handle(item.batch)
            self._metrics.stage("handle", f"handler.{handler.name}", time.monotonic() - began)
            *pieces, last = cut(batch, _PIECE_ROWS)
            for piece in pieces:
                following.put(Item(piece, ()), self._abandon)
            following.put(Item(last, item.tickets), self._abandon)

        self._work(place, transform, handler.start)

    def _deliver(self) -> None:
        def write(item: Item) -> None:
            began = time.monotonic()
            self.part.write(item.batch)
            self._metrics.stage("write", self.name, time.monotonic() - began)
            self._on_done(item, self.name)

        self._work(len(self.handlers), write, None)

    def _work(self, place: int, work: Callable[[Item], None], restart: Callable[[], None] | None) -> None:
        held: Item | None = None
        while not self._abandon.is_set():
            item, held = self._next(place, held)
            if item is None:
                if self._drained.is_set() and self._nothing_before(place):
                    return
                continue
            try:
                if not self._persist(place, item, work, restart):
                    return
            except Exception as error:  # whatever a part raises, the others are stopped in order
                self._supervisor.fail(self.name, error)
                return

    def _next(self, place: int, held: Item | None) -> tuple[Item | None, Item | None]:
        """The next item, merged with those that wait behind it if the handler likes that; and one of another source."""
        inbox = self._inboxes[place]
        first = held or inbox.get(_POLL)
        most = self.handlers[place].batches_at_once if place < len(self.handlers) else 1
        if first is None or most == 1:
            return first, None
        items = [first]
        while len(items) < most and (following := inbox.get(0.0)) is not None:
            if following.batch.origin != first.batch.origin:
                return _merged(items), following
            items.append(following)
        return _merged(items), None

    def _persist(
        self, place: int, item: Item, work: Callable[[Item], None], restart: Callable[[], None] | None
    ) -> bool:
        """Do the work, as often as it takes; False when it was given up because the service stops."""
        backoff = Backoff(self._retry_interval(item.batch.origin.source), limit=10.0)
        while True:
            try:
                if backoff.attempts and restart is not None:
                    restart()
                work(item)
            except StreamerError as error:
                if outcome(error) is not Outcome.RETRY:
                    raise
                if self._abandon.is_set():
                    return False
                self._problems[place] = f"attempt {backoff.attempts + 1} failed: {error}"
                stopping = not self._supervisor.try_again(self.name, error, backoff)
                if stopping and self._abandon.wait(backoff.next()):
                    return False
            else:
                self._problems.pop(place, None)
                return True

    def _nothing_before(self, place: int) -> bool:
        """Whether no earlier stage can still pass something on."""
        return all(not thread.is_alive() for thread in self._threads[:place]) and not len(self._inboxes[place])

    def _join(self, deadline: float) -> None:
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))


def _merged(items: Sequence[Item]) -> Item:
    return Item(merge([item.batch for item in items]), tuple(chain.from_iterable(item.tickets for item in items)))
