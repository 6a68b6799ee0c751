"""A sink at work: its handlers, their threads, and the queues between them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TypeAlias

from psql_streamer.batching import AHEAD_BYTES, LOOK_SECONDS, PASSED_ON_BATCHES, PIECE_ROWS
from psql_streamer.errors import SinkRefused
from psql_streamer.interfaces import Handler, Sink, Status
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.model import Batch, Stats
from psql_streamer.pipeline.asking import ask_stats, ask_status, interrupt, stop
from psql_streamer.pipeline.bounded_queue import BoundedQueue
from psql_streamer.pipeline.coalescing import cut, cut_off, merge
from psql_streamer.pipeline.item import Item
from psql_streamer.pipeline.lifecycle import Lifecycle
from psql_streamer.pipeline.retries import Retries
from psql_streamer.pipeline.transactions import Described, gather
from psql_streamer.pipeline.waiting import Waiting
from psql_streamer.retry_limits import FIRST_START_PAUSE_SECONDS, Tried

_STARTING = Status(False, "starting")

log = logging.getLogger("psql_streamer.pipeline")

_Job: TypeAlias = tuple[str, Callable[[], None]]
"""A source's name, and what is to be done for it."""


class SinkRunner:
    """One thread a handler, in order, and one that writes; a bounded queue before each.

    on_taken: called when an item left the first queue. on_done: called when an item is durable, with this sink's name.
    retry_interval: source name -> first pause before an item is tried again. describe: see Gathered.to_transaction.
    """

    def __init__(
        self,
        part: Sink,
        handlers: Sequence[Handler],
        metrics: Metrics,
        lifecycle: Lifecycle,
        on_taken: Callable[[], None],
        on_done: Callable[[Item, str], None],
        retry_interval: Callable[[str], float],
        describe: Callable[[Item], Described],
    ) -> None:
        self.name = f"sink.{part.name}"
        self.part = part
        self.handlers = handlers
        self._metrics = metrics
        self._lifecycle = lifecycle
        self._on_taken = on_taken
        self._on_done = on_done
        self._retry_interval = retry_interval
        self._describe = describe
        self._started: set[str] = set()
        self._lacks: tuple[str, ...] = ()
        self._at_work: set[int] = set()
        self._drained = threading.Event()  # nothing more comes: threads end when their queue is empty
        self._abandon = threading.Event()
        self._named_handlers = {f"handler.{handler.name}": handler for handler in handlers}
        names = [*self._named_handlers, self.name]
        self._retries = [Retries(name, Tried.BATCH, metrics, self._abandon) for name in names]
        limit = part.options.queue_bytes
        # The first queue is bounded in bytes alone, so that a sink that is away keeps its neighbours going for long.
        self._queues = [
            BoundedQueue[Item](limit, join=_join_by_source),
            *(BoundedQueue[Item](limit, most=PASSED_ON_BATCHES) for _ in handlers),
        ]
        self._waiting: Waiting | None = None  # while the sink writes: messages of what it gave are held
        self._next: tuple[Waiting, _Job] | None = None  # the next write, begun while the sink waits with this one
        self._ahead = handlers[0].batches_at_once if handlers else 1
        self._threads = [
            threading.Thread(target=self._handle, args=(place,), name=f"{self.name} {handler.name}", daemon=True)
            for place, handler in enumerate(handlers)
        ]
        if part.is_transactional:
            deliver = self._deliver_transactions
        else:
            deliver = self._deliver
            part.attach_next(self._begin_next)
        self._threads.append(threading.Thread(target=deliver, name=self.name, daemon=True))

    def start(self) -> None:
        """Start the handlers' engines and the sink, then the threads."""
        for name, handler in self._named_handlers.items():
            self._start(name, handler.start)
        self._start(self.name, self.part.start)
        for thread in self._threads:
            thread.start()

    @property
    def wants_more(self) -> bool:
        """Whether it may soon have nothing to do, or fewer small batches to write together than it likes."""
        queue, waiting = self._queues[0], self._waiting
        if len(queue) < self._ahead:
            return True
        if self.handlers or waiting is None or queue.used >= AHEAD_BYTES:
            return False
        return len(queue) < waiting.batches_liked

    def note_lack(self, what: str) -> None:
        """Tell in the status what it lacks of a source."""
        self._lacks += (what,)

    def take(self, item: Item) -> bool:
        """Queue a batch; waits while the queue is full. False: the service is stopping, and it was not taken."""
        return self._queues[0].put(item, self._lifecycle.stopping)

    def drain(self, deadline: float) -> None:
        """Let the threads finish what is queued, until the deadline."""
        self._drained.set()
        self._join(deadline)

    def interrupt(self) -> None:
        """Make the threads give up what they are at."""
        if self._at_work or self._next is not None or any(len(queue) for queue in self._queues):
            # Behind a failure nothing is waited for: there was no time that it could have taken too long.
            why = "in time" if self._lifecycle.failure is None else "because of the failure"
            log.warning("%s: not drained %s: the rest will be read again after the restart", self.name, why)
        self._abandon.set()
        for name, handler in self._named_handlers.items():
            interrupt(name, handler)
        interrupt(self.name, self.part)

    def leave(self, deadline: float) -> None:
        """Wait for the threads, which were interrupted."""
        self._join(deadline)

    @property
    def hanging(self) -> list[str]:
        """Its threads that have not ended."""
        return [thread.name for thread in self._threads if thread.is_alive()]

    def stop(self) -> None:
        """Release what the sink and its handlers have. May take as long as they do."""
        stop(self.name, self.part)
        for name, handler in self._named_handlers.items():
            stop(name, handler)

    def status(self) -> Status:
        """The sink's own status, or what is being tried again; and what it lacks of its sources."""
        status = self._compute_status(self.name, len(self.handlers), self.part)
        return Status(status.ok, "; ".join((status.reason, *self._lacks)))

    def collect_handler_status(self) -> Mapping[str, Status]:
        """The same of each of its handlers, by part."""
        return {
            name: self._compute_status(name, place, handler)
            for place, (name, handler) in enumerate(self._named_handlers.items())
        }

    def stats(self) -> Stats:
        """The sink's counters and its queue."""
        used, limit = sum(queue.used for queue in self._queues), sum(queue.limit for queue in self._queues)
        return {**ask_stats(self.name, self.part), "queue_bytes": used, "queue_limit_bytes": limit}

    def collect_handler_stats(self) -> Mapping[str, Stats]:
        """The counters of its handlers, by part."""
        return {name: ask_stats(name, handler) for name, handler in self._named_handlers.items()}

    def _start(self, name: str, start: Callable[[], None]) -> None:
        log.info("%s: starting", name)
        self._lifecycle.start(name, start, FIRST_START_PAUSE_SECONDS)
        self._started.add(name)

    def _compute_status(self, name: str, place: int, part: Sink | Handler) -> Status:
        if name not in self._started:
            problem = self._lifecycle.start_problem(name)
            return Status(False, problem) if problem else _STARTING
        problem = self._retries[place].problem
        return Status(False, problem) if problem else ask_status(name, part)

    def _handle(self, place: int) -> None:
        handler, following = self.handlers[place], self._queues[place + 1]
        at_work: tuple[Item, Batch] | None = None  # what is left of an item that is tried again

        def transform(item: Item) -> None:
            nonlocal at_work
            rest: Batch | None = at_work[1] if at_work is not None and at_work[0] is item else item.batch
            while rest is not None:
                began = time.monotonic()
                head, rest = cut_off(rest, handler.most_rows)
                batch = handler.handle(head)
                self._metrics.observe_stage("handle", f"handler.{handler.name}", time.monotonic() - began)
                *pieces, last = cut(batch, PIECE_ROWS)
                for piece in pieces:
                    following.put(Item(piece, ()), self._abandon)
                following.put(Item(last, () if rest is not None else item.batch_numbers), self._abandon)
                at_work = None if rest is None else (item, rest)  # nobody holds rows that were passed on

        self._work(place, f"handler.{handler.name}", self._make_taker(place, transform), handler.start)

    def _deliver(self) -> None:
        def take() -> _Job | None:
            begun, self._next = self._next, None
            if begun is None and (first := self._take_first(LOOK_SECONDS)) is not None:
                begun = self._begin_write(*first)
            if begun is None:
                return None
            self._waiting, job = begun
            return job

        self._work(len(self.handlers), self.name, take, None)

    def _deliver_transactions(self) -> None:
        place = len(self.handlers)

        def take() -> _Job | None:
            gathered = gather(self._queues[place], lambda: self._abandon.is_set() or self._is_over(place))
            if gathered is None:
                return None
            for item in gathered.items:
                self._require_place(item.batch)
            write = partial(self.part.write_transaction, gathered.to_transaction(self._describe))
            return gathered.source, partial(self._write, write, gathered.items)

        self._work(place, self.name, take, None)

    def _begin_next(self) -> bool:
        """Whether the write behind the present one is begun, now or before."""
        if self._next is None and (first := self._take_first(0.0)) is not None:
            if not self.handlers:
                self._on_taken()  # before the sink makes records: the source makes a batch beside it
            try:
                self._next = self._begin_write(*first)
            except BaseException as error:
                self._abandon.set()  # the batch is in no write, and none of those behind it may overtake it
                self._lifecycle.fail(self.name, error)
                raise
        return self._next is not None

    def _begin_write(self, source: str, waiting: Waiting) -> tuple[Waiting, _Job]:
        """What writes the first item, and those that wait behind it as long as the sink takes more."""
        return waiting, (source, partial(self._write, self.part.begin_write(waiting), waiting.taken))

    def _take_first(self, timeout: float) -> tuple[str, Waiting] | None:
        """The next item, which nobody else holds, and the name of its source."""
        place = len(self.handlers)
        first = self._queues[place].get(timeout)
        if first is None:
            return None
        behind, count_rows = partial(self._take_behind, place), lambda: self.part.rows_at_once
        return first.batch.source.name, Waiting(first, behind, count_rows, self._require_place)

    def _take_behind(self, place: int, timeout: float) -> Item | None:
        item = self._queues[place].get(0.0 if self._drained.is_set() else timeout)
        if item is not None and place == 0:
            self._on_taken()
        return item

    def _write(self, write: Callable[[], None], items: Sequence[Item]) -> None:
        """Call the sink, and note the items as durable."""
        began = time.monotonic()
        write()
        if not items:  # nobody would acknowledge the one that waited, and the source would keep its log for ever
            raise SinkRefused("it has taken no batch, though one waited", "let begin_write take the first one")
        self._metrics.observe_stage("write", self.name, time.monotonic() - began)
        self._waiting = None
        for item in items:
            self._on_done(item, self.name)

    def _require_place(self, batch: Batch) -> None:
        """SinkRefused for rows that handlers put aside before a sink that would not look at them."""
        if batch.rejections and not self.part.options.takes_rejected_rows:
            what = f"rule {batch.rejections[0].rule!r} puts rows aside, and sinks of this type lose such rows"
            raise SinkRefused(what, "let the rule stop or give nulls, or use a sink with takes_rejected_rows")

    def _make_taker(self, place: int, work: Callable[[Item], None]) -> Callable[[], _Job | None]:
        """Gives what is to be done for one item after the other."""
        held: Item | None = None

        def take() -> _Job | None:
            nonlocal held
            item, held = self._take_next(place, held)
            return None if item is None else (item.batch.source.name, partial(work, item))

        return take

    def _work(self, place: int, name: str, take: Callable[[], _Job | None], restart: Callable[[], None] | None) -> None:
        try:
            self._work_until_over(place, take, restart)
        except BaseException as error:  # whatever a part raises, also SystemExit: the others are stopped in order
            self._at_work.add(place)  # also where it failed in front of the work: what it took is not done
            self._lifecycle.fail(name, error)

    def _work_until_over(self, place: int, take: Callable[[], _Job | None], restart: Callable[[], None] | None) -> None:
        while not self._abandon.is_set():
            # In a call of its own: what it was at would hold its rows until there is something else to do.
            if not self._work_once(place, take, restart):
                return

    def _work_once(self, place: int, take: Callable[[], _Job | None], restart: Callable[[], None] | None) -> bool:
        """Do the next thing, if one comes soon; False when nothing more is to be done."""
        job = take()
        if job is None:
            return not self._is_over(place)
        if place == 0:
            self._on_taken()
        self._at_work.add(place)
        source, work = job
        if not self._retries[place].run(work, self._retry_interval(source), recover=restart):
            return False
        self._at_work.discard(place)
        return True

    def _take_next(self, place: int, held: Item | None) -> tuple[Item | None, Item | None]:
        """The next item, merged with those that wait behind it if the handler likes that; and one of another source."""
        queue = self._queues[place]
        first = held or self._take_in_turn(place)
        most = self.handlers[place].batches_at_once
        if first is None or most == 1:
            return first, None
        items = [first]
        while len(items) < most and (following := queue.get(0.0)) is not None:
            if following.batch.source != first.batch.source:
                return _merge_items(items), following
            items.append(following)
        return _merge_items(items), None

    def _take_in_turn(self, place: int) -> Item | None:
        """What waits for a handler whose last result was taken: so a batch less is in memory, and nobody lacks it."""
        queue, following = self._queues[place], self._queues[place + 1]
        is_due = queue.wait_until_filled(LOOK_SECONDS) and following.wait_until_empty(LOOK_SECONDS)
        return queue.get(0.0) if is_due else None

    def _is_over(self, place: int) -> bool:
        """Whether nothing more comes: no earlier stage can still pass something on."""
        if not self._drained.is_set():
            return False
        return all(not thread.is_alive() for thread in self._threads[:place]) and not len(self._queues[place])

    def _join(self, deadline: float) -> None:
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))


def _merge_items(items: Sequence[Item]) -> Item:
    return Item(merge([item.batch for item in items]), tuple(chain.from_iterable(item.batch_numbers for item in items)))


def _join_by_source(items: Sequence[Item]) -> Sequence[Item]:
    """Those of one source that stand behind one another are one. They stay in their order, whatever their origins are:
    a source gives batches of several where it reads what several servers wrote.
    """
    runs: list[list[Item]] = []
    last: dict[str, list[Item]] = {}
    for item in items:
        origin = item.batch.source
        run = last.get(origin.name)
        if run is None or run[0].batch.source != origin:
            run = last[origin.name] = []
            runs.append(run)
        run.append(item)
    return [_merge_items(run) for run in runs]
