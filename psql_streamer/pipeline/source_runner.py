"""A source at work: its thread, and its batches in flight."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeGuard

from psql_streamer.batching import LOOK_SECONDS
from psql_streamer.checkpoint.joining_sinks import find_lack
from psql_streamer.checkpoint.resume import choose_position, find_pending_override, require_same_stream
from psql_streamer.checkpoint.store import Store
from psql_streamer.checkpoint.store_format import StoredPosition
from psql_streamer.checkpoint.tracker import Tracker
from psql_streamer.circles import find_circles
from psql_streamer.errors import Outcome, PositionAhead, SourceRefused, StreamerError, choose_outcome
from psql_streamer.interfaces import Handler, Severity, Source, Status
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.model import Position, Relation, Stats
from psql_streamer.pipeline.asking import ask_stats, ask_status, interrupt, stop
from psql_streamer.pipeline.item import Item
from psql_streamer.pipeline.lifecycle import Lifecycle
from psql_streamer.pipeline.logged_changes import log_changes
from psql_streamer.pipeline.reading_ahead import ReadingAhead
from psql_streamer.pipeline.repeated_failures import RepeatedFailures
from psql_streamer.pipeline.retries import Retries
from psql_streamer.pipeline.sink_runner import SinkRunner
from psql_streamer.pipeline.snapshot_requests import SnapshotRequests
from psql_streamer.pipeline.source_notes import SourceNotes
from psql_streamer.pipeline.transactions import Described
from psql_streamer.retry_limits import Tried
from psql_streamer.snapshot_figures import summarize

_STALLED_AFTER_SECONDS = 60.0
"""The time that a batch may be on its way to a sink before /status calls the pipeline stalled."""

_STORE_STALLED_AFTER_SECONDS = 10.0
"""The time that the disk may take for a position before /status says so."""

_DROPPED_LOOK_SECONDS = 3600.0
"""Between two looks for tables that do not exist any more."""

log = logging.getLogger("psql_streamer.pipeline")


class SourceRunner:
    """Reads batches, numbers them, puts each into the queue of every sink; stores and confirms what is durable.

    on_durable: called when a batch became durable in one more sink, from that sink's thread. allows_circles: whether a
    sink may write what the source reads.
    snapshots: what is asked of the source's snapshots.
    """

    def __init__(
        self,
        part: Source,
        sinks: Sequence[SinkRunner],
        store: Store,
        metrics: Metrics,
        lifecycle: Lifecycle,
        on_durable: Callable[[], None],
        allows_circles: bool = False,
    ) -> None:
        self.name = f"source.{part.name}"
        self.part = part
        self._sinks = sinks
        self._sink_names = tuple(sink.part.name for sink in sinks)
        self._store = store
        self._metrics = metrics
        self._lifecycle = lifecycle
        self._on_durable = on_durable
        self._allows_circles = allows_circles
        self._tracker = Tracker()
        self._new_shapes: deque[tuple[int, Relation]] = deque()  # each with the number of its batch
        self._lock = threading.Condition()
        self._reading_ahead = ReadingAhead()
        self._last_batch_number = 0
        self._position: Position | None = None
        self._stream: Mapping[str, str] | None = None  # of the stream that was begun
        self._override = ""
        self._is_ahead = False  # of what the server has
        self._serial = 0  # of the position of the session's begin
        self._notes = SourceNotes(part.name, store, [sink.part for sink in sinks])
        self._retries = Retries(self.name, Tried.STREAM, metrics, lifecycle.stopping)
        self._repeated_failures = RepeatedFailures()
        self._stored: Position | None = None
        self._goes_on_at: Position | None = None  # as long as nothing is stored
        self._storing_since: float | None = None
        self._confirming = threading.Lock()  # positions that are confirmed never go back
        self._unconfirmed: StreamerError | None = None
        self._unnoted = ""  # why a handler does not take it that a position is durable
        self._dropped: tuple[Position, Sequence[Relation]] | None = None
        self._look_for_dropped_at = 0.0
        self._is_left = False
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self.snapshots = SnapshotRequests(part, store, self._is_started, lifecycle.stopping)

    def load(self) -> None:
        """Read what is stored: the snapshots, and where the source goes on, also if it is not started after all."""
        self.snapshots.load()
        record = self._store.get(self.part.name)
        stored = None if record is None else record.position
        self._goes_on_at = find_pending_override(self.part, record) or stored

    def list_published(self) -> Sequence[Relation] | None:
        """See Source.list_published. It is tried for as long as a start."""
        found: list[Sequence[Relation] | None] = []
        self._start(lambda: found.append(self.part.list_published()))
        return found[0] if found else None

    def start(self) -> None:
        """Compare the stored position with the server, and stream. Start-up waits for no server for long."""
        log.info("%s: starting", self.name)
        self._start(self._connect)
        if not self._lifecycle.stopping.is_set():
            self._thread.start()

    def interrupt(self) -> None:
        """Make the source give up what it waits for."""
        interrupt(self.name, self.part)

    def wake(self) -> None:
        """A sink took a batch: it may be time to read the next."""
        if any(map(self._reads_ahead, self._sinks)):
            with self._lock:
                self._lock.notify()

    def join(self, deadline: float) -> None:
        """Wait for the thread; reading ends when the service is stopping."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))

    def stop(self) -> None:
        """Leave the server, telling it what was stored last. A thread that hangs in the source loses it meanwhile."""
        self._is_left = True
        stop(self.name, self.part)

    def log_end(self) -> None:
        """Where it will go on, and what is sent again because its position was not stored."""
        with self._lock:
            in_flight = len(self._tracker)
        goes_on_at = self._stored or self._goes_on_at
        where = f"at {goes_on_at}" if goes_on_at else "where it began"
        unstored, sinks = self.unstored, ", ".join(sink.name for sink in self._sinks)
        if unstored is not None and self._notes.are_made:
            where = f"behind the last transaction of {sinks}"
            log.warning("%s: position %s was not stored: the next start goes on %s", self.name, unstored, where)
        elif unstored is not None:
            message = (
                "%s: position %s was not stored: the next start goes on %s, and what %s took since then is sent again"
            )
            log.error(message, self.name, unstored, where, sinks)
        batches = "1 batch that was read is" if in_flight == 1 else f"{in_flight} batches that were read are"
        again = f"; {batches} read again" if in_flight else ""
        log.info("%s: stopped; the next start goes on %s%s", self.name, where, again)

    @property
    def unstored(self) -> Position | None:
        """The position that is durable in every sink, if it has not been stored."""
        with self._lock:
            durable = self._tracker.durable
        return None if durable == self._stored else durable

    def checkpoint(self) -> None:
        """Store what is durable, then confirm it: in this order, or a gap could hide behind what is confirmed."""
        with self._lock:
            durable, batch_number = self._tracker.durable, self._tracker.durable_batch_number
        if durable is None or durable == self._stored:
            return
        self._storing_since = began = time.monotonic()
        if not self._note_durable(durable):
            self._storing_since = None
            return
        shapes = self._list_shapes_until(batch_number)
        self._store.put(self.part.name, self._record(durable, batch_number), shapes, self._take_dropped_until(durable))
        self._forget_shapes(len(shapes))
        self._storing_since = None
        self._metrics.observe_stage("store", self.name, time.monotonic() - began)
        self._stored = durable
        self._confirm()
        self._metrics.note_stored(self.part.name, batch_number)
        self.snapshots.settle(batch_number)

    def _note_durable(self, durable: Position) -> bool:
        """Tell the handlers; False when one cannot take it: then nothing is stored yet."""
        for handler in self._list_handlers():
            try:
                handler.note_durable(self.part.name, durable)
            except Exception as error:
                self._keep_unstored(f"handler.{handler.name}", error)
                return False
        self._unnoted = ""
        return True

    def _keep_unstored(self, name: str, error: Exception) -> None:
        """What may pass is tried again with the next turn."""
        if not _may_pass(error):
            self._lifecycle.fail(name, error)
            return
        if not self._unnoted:
            self._metrics.count_error(name, error)
            log.warning("%s: %s: position %s is not stored yet", name, error, self.unstored)
        self._unnoted = f"{name}: {error}"

    def _confirm(self) -> None:
        """Confirm what is stored. A server that is away is an outage of the source: it is started again, and what is
        stored by then is confirmed.
        """
        try:
            with self._confirming:
                if self._stored is not None:
                    self.part.confirm(self._stored)
        except Exception as error:
            if _may_pass(error):
                self._unconfirmed = error
            else:
                self._lifecycle.fail(self.name, error)

    def describe(self, item: Item) -> Described:
        """What a transaction notes that ends with an item, and what asks the source for what it commits."""
        position, batch_number = item.batch.position, item.batch_numbers[-1]
        note = self._notes.make(self._record(position, batch_number), self._list_shapes_until(batch_number))
        return note, partial(self.part.find_consumed_offsets, position)

    def acknowledge(self, item: Item, sink: str) -> None:
        """A sink has a batch, or several that were merged, durably."""
        with self._lock:
            for batch_number in item.batch_numbers:
                self._tracker.acknowledge(batch_number, sink)
            if self._last_batch_number in item.batch_numbers:
                self._reading_ahead.note_taken(time.monotonic())
            self._lock.notify()
        self._on_durable()

    def status(self) -> Status:
        """The source's own status, unless it is being connected again, or what it gave is stuck on its way."""
        problem = self._lifecycle.start_problem(self.name) or self._retries.problem
        repeated = self._repeated_failures.describe(self._position)
        if repeated and problem in repeated:
            return Status(False, repeated)
        if problem:
            return Status(False, problem)
        if self._unnoted:
            return Status(False, f"its position is not stored: {self._unnoted}")
        status = ask_status(self.name, self.part)
        if status.ok and not self._is_started():
            return Status(False, "has not started yet")  # nor does it take snapshots yet
        if (began := self._storing_since) is not None and time.monotonic() - began > _STORE_STALLED_AFTER_SECONDS:
            age = time.monotonic() - began
            return Status(False, f"its position has not been stored for {age:.0f} s: look at the disk that lmdb is on")
        with self._lock:
            oldest = self._tracker.find_oldest()
        if status.ok and oldest is not None:
            age = time.monotonic() - oldest[0]
            if age > _STALLED_AFTER_SECONDS:
                return Status(False, f"a batch has waited {age:.0f} s for {', '.join(sorted(oldest[1]))}")
        return status

    def stats(self) -> Stats:
        """The source's counters and the positions."""
        with self._lock:
            in_flight = len(self._tracker)
        stored = {"stored_position": str(self._stored)} if self._stored else {}
        return {
            **ask_stats(self.name, self.part),
            **stored,
            "batches_in_flight": in_flight,
            **self._summarize_snapshots(),
        }

    def _summarize_snapshots(self) -> Stats:
        if not self.snapshots.are_taken:
            return {}
        return {"snapshots": summarize([snapshot.progress for snapshot in self.snapshots.list_known()])}

    def _is_started(self) -> bool:
        return self._thread.ident is not None

    def _list_shapes_until(self, batch_number: int) -> list[Relation]:
        with self._lock:
            return [shape for of_batch, shape in self._new_shapes if of_batch <= batch_number]

    def _forget_shapes(self, count: int) -> None:
        """They are stored."""
        with self._lock:
            for _ in range(count):
                self._new_shapes.popleft()

    def _look_for_dropped_tables(self) -> None:
        """Now and then: what tables that are gone looked like is remembered until their last change has been stored."""
        now = time.monotonic()
        if now < self._look_for_dropped_at:
            return
        self._look_for_dropped_at = now + _DROPPED_LOOK_SECONDS
        remembered = self._store.read_relations(self.part.name)
        self._dropped = self.part.find_dropped(remembered) if remembered else None

    def _take_dropped_until(self, position: Position) -> Sequence[Relation]:
        dropped = self._dropped
        if dropped is None or not self.part.has_reached(position, dropped[0]):
            return ()
        self._dropped = None
        return dropped[1]

    def _start(self, start: Callable[[], None]) -> None:
        self._lifecycle.start(self.name, start, self.part.options.start_retry_interval, self.interrupt)

    def _connect(self) -> None:
        """Stream from where this source has got. Which stream that is must not change, from one session to the next."""
        stream = dict(self.part.read_stream_identity())
        if self._stream is not None:
            position = require_same_stream(self.part, self._position, self._stream, stream)
            self._start_part(position)
            self._stream = stream
            if position is not None and position != self._position:
                self._move_to(position)
        else:
            self._begin(stream)
        log.info("%s: %s", self.name, ask_status(self.name, self.part).reason)

    def _begin(self, stream: Mapping[str, str]) -> None:
        """The first session: at the stored position, unless the operator sends the source elsewhere."""
        self._refuse_circles()
        for sink in self._sinks:
            if (writer := sink.part.find_writer()) is not None:
                self.part.serve_transactions(writer)
        self._notes.settle(self.part.has_reached, self.part.keeps_place_in_transactions)
        record, override = self._store.get(self.part.name), self.part.position_override
        resume = choose_position(self.part, record, stream)
        self._goes_on_at = resume.position
        if record is not None:
            self._serial = record.serial
            self.part.remember(self._store.read_relations(self.part.name))
            if resume.overriding and resume.position is not None:
                self._log_override(record.position, resume.position)
                if record.stream == stream:
                    resume = replace(resume, position=self.part.move_position(record.position, resume.position))
        self.snapshots.pass_on()
        for handler in self._list_handlers():
            handler.begin_stream(self.part.name, resume.position)
        self._start_part(resume.position)
        self._tell_of_joining_sinks(record)
        self._position, self._stream = resume.position, stream
        self._override = "" if override is None else str(override)
        if (resume.overriding or resume.moved) and resume.position is not None:
            # The source stands there from now on: the next start does not go there again.
            self._notes.begin_lineage()
            self._store.put(self.part.name, self._record(resume.position, 0))
            self._stored = resume.position

    def _tell_of_joining_sinks(self, stored: StoredPosition | None) -> None:
        """Until the next restart, as with everything that no later event shows."""
        for sink in self._sinks:
            lack = find_lack(sink.part.name, self.part.name, stored, takes_snapshots=self.snapshots.are_taken)
            if lack is not None:
                log.warning("%s: %s: %s", sink.name, lack.problem, lack.remedy)
                sink.note_lack(f"{lack.problem}: {lack.remedy}")

    def _move_to(self, position: Position) -> None:
        """Everything that was read is stored (Source.follow_stream): the place is stored as an empty batch's would be,
        and what was stored before is not confirmed to the server of this stream.
        """
        with self._lock:
            self._last_batch_number = number = self._tracker.add(position, (), time.monotonic())
        self._notes.begin_lineage()
        self._store.put(self.part.name, self._record(position, number))
        self._position = self._stored = position

    def _start_part(self, position: Position | None) -> None:
        """A server that ends in front of the position is remembered: at the next start it may have passed it."""
        try:
            self.part.start(position)
        except PositionAhead:
            self._is_ahead = True
            if (record := self._store.get(self.part.name)) is not None:
                self._store.put(self.part.name, replace(record, ahead=str(record.position)))
            raise

    def _refuse_circles(self) -> None:
        """SourceRefused when a sink may write what the source reads."""
        parts = [sink.part for sink in self._sinks]
        for sink, found in find_circles(parts, self.part.name, self.part.describe_topics_read(), self._allows_circles):
            if found.severity is Severity.ERROR:
                raise SourceRefused(f"sink.{sink.name} {found.problem}", found.remedy)
            log.warning("sink.%s %s: %s", sink.name, found.problem, found.remedy)

    def _list_handlers(self) -> Iterator[Handler]:
        return (handler for sink in self._sinks for handler in sink.handlers)

    def _log_override(self, stored: Position, override: Position) -> None:
        back = self.part.has_reached(stored, override)
        how = "going back" if back else "skipping what lies between:"
        key = self.part.override_key or "a position of the operator's"
        log.warning("%s: %s: %s from %s to %s", self.name, key, how, stored, override)

    def _record(self, position: Position, batch_number: int) -> StoredPosition:
        ahead = str(position) if self._is_ahead else ""
        serial = self._serial + batch_number
        return StoredPosition(position, self._stream or {}, self._override, serial, ahead, self._sink_names)

    def _run(self) -> None:
        try:
            interval, repeated = self.part.options.start_retry_interval, self._repeated_failures
            while self._retries.run(
                self._turn, repeated.lengthen_pause(interval, self._position), recover=self._reconnect
            ):
                pass
        except BaseException as error:  # whatever a part raises, also SystemExit: the others are stopped in order
            if not self._is_left:
                self._lifecycle.fail(self.name, error)

    def _reconnect(self) -> None:
        self._connect()
        self._confirm()
        self._retries.problem = ""  # connected, though the next batch may have to wait for a sink's queue

    def _turn(self) -> None:
        if (outage := self._unconfirmed) is not None:
            self._unconfirmed = None
            raise outage
        if self._unnoted:
            self._on_durable()
        self._look_for_dropped_tables()
        self.snapshots.note_ended(self._last_batch_number)
        try:
            self._read()
        except StreamerError as error:
            self._repeated_failures.note(error, self._position)
            raise

    def _read(self) -> None:
        if not self._wait_for_a_sink():
            if (failure := self.part.failure) is not None:
                raise failure
            return
        began = time.monotonic()
        batch = self.part.read(LOOK_SECONDS)
        if batch is None:
            return
        self._metrics.observe_stage("decode", self.name, time.monotonic() - max(began, batch.received_at))
        self._reading_ahead.note(batch, time.monotonic())
        if self.part.options.verbose:
            log_changes(log, self.name, batch)
        # The place of a batch without events has to be in a transaction as well, where nothing else tells it.
        sinks = () if batch.idle and not self.part.keeps_place_in_transactions else self._sinks
        with self._lock:
            batch_number = self._tracker.add(batch.position, [sink.name for sink in sinks], time.monotonic())
            self._last_batch_number = batch_number
            self._new_shapes.extend((batch_number, change.relation) for change in batch.schema_changes)
        self._metrics.count_batch(self.part.name, batch, batch_number)
        if not sinks:
            self._on_durable()
        for sink in sinks:
            if not sink.take(Item(batch, (batch_number,))):
                return
        self._position = batch.position

    def _wait_for_a_sink(self) -> bool:
        """Wait until some sink wants a batch, or is done with all (see ReadingAhead); False when that takes long."""
        with self._lock:
            return not self._sinks or self._lock.wait_for(lambda: any(map(self._wants_more, self._sinks)), LOOK_SECONDS)

    def _wants_more(self, sink: SinkRunner) -> bool:
        if self._reads_ahead(sink):
            return sink.wants_more
        ahead = self._reading_ahead.count_ahead(self.part.least_interval)
        return self._tracker.count_unacknowledged(sink.name) <= ahead

    def _reads_ahead(self, sink: SinkRunner) -> bool:
        return self._reading_ahead.is_on_for(bool(sink.handlers))


def _may_pass(error: Exception) -> TypeGuard[StreamerError]:
    return isinstance(error, StreamerError) and choose_outcome(error) is Outcome.RETRY
