"""The pipeline: builds the parts, starts them, moves batches, acknowledges, stops. The one file to read.

    source thread     start (again, with backoff), read a batch, number it, put it into every sink's inbox
    handler thread    (a sink with handlers) take from the inbox, transform, pass on
    sink thread       write until it is durable (again, with backoff), tell the tracker
    keeper thread     what every sink has: store the position (LMDB, synced), then confirm it to the source

A batch counts when every sink has it; the store learns it before the server does. Whatever errors.OUTCOMES calls
`stop` ends the whole service with its message: a supervisor that restarts it shows the message again.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import FrameType

from psql_streamer import logs
from psql_streamer.backoff import Backoff
from psql_streamer.checkpoint import Tracker
from psql_streamer.config import Config
from psql_streamer.errors import Outcome, PositionRefused, StreamerError, outcome
from psql_streamer.inbox import Inbox
from psql_streamer.interfaces import Handler, Service, Sink, Source, Status
from psql_streamer.metrics import Metrics
from psql_streamer.model import Batch, Position, Stats
from psql_streamer.store import Record, Store

_STALLED_AFTER = 60.0
"""Seconds that a batch may be on its way to a sink before /status calls the pipeline stalled."""

_POLL = 0.2

log = logging.getLogger("psql_streamer.pipeline")


def run(config: Config) -> int:
    """Run the service until SIGTERM or SIGINT; the exit code: 0 when told to stop, 1 after a failure."""
    # Here, and not at the top: whoever embeds a Pipeline needs no HTTP server.
    from psql_streamer.api import ApiServer, create_app

    metrics = Metrics()
    pipeline = Pipeline(config, metrics)
    metrics.watch(pipeline)
    api = ApiServer(create_app(pipeline, metrics), config.http.host, config.http.port)
    _stop_on_signals(pipeline.stop)
    api.start()
    try:
        pipeline.start()
        pipeline.wait()
    finally:
        pipeline.close()
        api.stop()
    return 0


@dataclass(frozen=True, slots=True)
class _Item:
    """A batch on its way to one sink."""

    batch: Batch
    ticket: int

    @property
    def nbytes(self) -> int:
        return self.batch.nbytes


class Pipeline(Service):
    """All sources, handlers and sinks of one configuration.

    start, wait, close in this order; `stop` from anywhere. A failure of any part is raised by start or wait.
    """

    def __init__(self, config: Config, metrics: Metrics) -> None:
        self._config = config
        self._metrics = metrics
        self._store = Store(config.lmdb, config.lmdb_map_size)
        self._stopping = threading.Event()
        self._failure: StreamerError | None = None
        self._sinks = {name: _SinkRunner(self, name) for name in config.sinks}
        self._sources = {name: _SourceRunner(self, name) for name in config.sources}
        self._keeper = _Keeper(self)
        self._ticker = _Ticker(self, config.ticker_interval)

    def start(self) -> None:
        """Open the store, start the sinks and their handlers, then the sources."""
        self.start_sinks()
        self.start_sources()

    def start_sinks(self) -> None:
        """Open the store; start the handlers' engines and the sinks."""
        self._store.open()
        for sink in self._sinks.values():
            sink.start()

    def start_sources(self) -> None:
        """Begin to stream."""
        for source in self._sources.values():
            source.start()
        self._keeper.start()
        self._ticker.start()

    def wait(self) -> None:
        """Until `stop` is called or a part fails; a failure is raised here."""
        self._stopping.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Begin to stop: nothing more is read."""
        self._stopping.set()

    def close(self) -> None:
        """Stop: drain within drainTimeout, remember what was acknowledged, and nothing else, release everything."""
        self._stopping.set()
        deadline = time.monotonic() + (0.0 if self._failure else self._config.drain_timeout)
        for source in self._sources.values():
            source.join(deadline)
        for sink in self._sinks.values():
            sink.close(deadline)
        self._keeper.close()
        for source in self._sources.values():
            source.close()
        self._store.close()

    def status(self) -> Mapping[str, Status]:
        """As Service.status."""
        parts = {f"source.{name}": source.status() for name, source in self._sources.items()}
        return parts | {f"sink.{name}": sink.status() for name, sink in self._sinks.items()}

    def stats(self) -> Mapping[str, Stats]:
        """As Service.stats."""
        parts = {f"source.{name}": source.stats() for name, source in self._sources.items()}
        return parts | {f"sink.{name}": sink.stats() for name, sink in self._sinks.items()}

    def set_debug(self, on: bool) -> None:
        """As Service.set_debug."""
        logs.set_debug(on=on)
        for source in self._sources.values():
            source.part.set_debug(on)
        for sink in self._sinks.values():
            sink.part.set_debug(on)

    # For the runners.

    def fail(self, part: str, error: BaseException) -> None:
        """A part cannot go on: remember the first such error and stop."""
        self._metrics.failed(part, error)
        if not isinstance(error, StreamerError):
            log.error("%s: unexpected error", part, exc_info=error)
            error = StreamerError(f"{part}: unexpected {type(error).__name__}", "please report it with the log")
        elif self._failure is None:
            error = _named(part, error)
        if self._failure is None:
            self._failure = error
        self._stopping.set()

    def try_again(self, part: str, error: StreamerError, backoff: Backoff) -> bool:
        """Log, count and pause; False when the service is stopping."""
        pause = backoff.next()
        log.warning("%s: %s (attempt %d, next in %.1f s)", part, error, backoff.attempts, pause)
        self._metrics.failed(part, error)
        self._metrics.retried(part)
        return not self._stopping.wait(pause)

    def durable(self) -> None:
        """A batch became durable in one more sink."""
        self._keeper.wake()

    def sinks_of(self, source: str) -> list[_SinkRunner]:
        """The sinks that take from a source."""
        return [sink for sink in self._sinks.values() if source in sink.takes_from]

    def source_of(self, batch: Batch) -> _SourceRunner:
        """Where a batch came from."""
        return self._sources[batch.origin.source]

    @property
    def sources(self) -> Mapping[str, _SourceRunner]:
        """The runners by name."""
        return self._sources


class _SourceRunner:
    """A source, its thread, and what of it is in flight."""

    def __init__(self, pipeline: Pipeline, name: str) -> None:
        self.name = f"source.{name}"
        self.part: Source = pipeline._config.sources[name].build()
        self.send_retry_interval = self.part.options.send_retry_interval
        self._source_name = name
        self._pipeline = pipeline
        self._metrics = pipeline._metrics
        self._stopping = pipeline._stopping
        self._tracker = Tracker()
        self._lock = threading.Lock()
        self._position: Position | None = None
        self._fence: Mapping[str, str] = {}
        self._stored: Position | None = None
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        """Compare the stored position with the server, and stream. Start-up waits for no server for long."""
        _patiently(self._pipeline, self.name, self._connect, self.part.options.start_retry_interval)
        self._thread.start()

    def join(self, deadline: float) -> None:
        """Wait for the thread; reading ends when the pipeline is stopping."""
        _join(self._thread, deadline)

    def close(self) -> None:
        """Leave the server, telling it what was stored last."""
        self.part.stop()

    def keep(self) -> None:
        """Store what is durable, then confirm it: in this order, or a gap could hide behind the slot."""
        with self._lock:
            durable = self._tracker.durable
        if durable is None or durable == self._stored:
            return
        began = time.monotonic()
        self._pipeline._store.put(self._source_name, Record(durable, self._fence))
        self._metrics.stage("store", self.name, time.monotonic() - began)
        self._stored = durable
        self._metrics.position_stored(self._source_name, durable)
        self.part.confirm(durable)

    def done(self, ticket: int, sink: str) -> None:
        """A sink has a batch durably."""
        with self._lock:
            self._tracker.done(ticket, sink)
        self._pipeline.durable()

    def status(self) -> Status:
        """The source's own status, unless what it gave is stuck on its way."""
        status = self.part.status()
        with self._lock:
            oldest = self._tracker.oldest()
        if status.ok and oldest is not None:
            age = time.monotonic() - oldest[0]
            if age > _STALLED_AFTER:
                return Status(False, f"a batch has waited {age:.0f} s for {', '.join(sorted(oldest[1]))}")
        return status

    def stats(self) -> Stats:
        """The source's counters and the positions."""
        with self._lock:
            in_flight = len(self._tracker)
        stored = {"stored_lsn": int(self._stored.lsn), "stored_position": str(self._stored)} if self._stored else {}
        return {**self.part.stats(), **stored, "batches_in_flight": in_flight}

    def _connect(self) -> None:
        fence = dict(self.part.fence())
        if self._position is None:
            record = self._pipeline._store.get(self._source_name)
            if record is not None:
                _compare(self._source_name, record, fence, self.part)
                self._position = record.position
        self._fence = fence
        self.part.start(self._position)
        log.info("%s: %s", self.name, self.part.status().reason)

    def _run(self) -> None:
        backoff = Backoff(self.part.options.start_retry_interval)
        connected = True
        while not self._stopping.is_set():
            try:
                if not connected:
                    self._connect()
                    connected = True
                self._read()
                backoff.reset()
            except StreamerError as error:
                if outcome(error) is not Outcome.RETRY:
                    self._pipeline.fail(self.name, error)
                    return
                connected = False
                if not self._pipeline.try_again(self.name, error, backoff):
                    return
            except Exception as error:  # whatever a part raises, the others are stopped in order
                self._pipeline.fail(self.name, error)
                return

    def _read(self) -> None:
        began = time.monotonic()
        batch = self.part.read(_POLL)
        if batch is None:
            return
        self._metrics.stage("decode", self.name, time.monotonic() - max(began, batch.received_at))
        self._metrics.batch_received(self._source_name, batch)
        sinks = self._pipeline.sinks_of(self._source_name) if len(batch) else []
        with self._lock:
            ticket = self._tracker.add(batch.position, [sink.name for sink in sinks], time.monotonic())
        if not sinks:
            self._pipeline.durable()
        for sink in sinks:
            if not sink.take(_Item(batch, ticket)):
                return
        self._position = batch.position


class _SinkRunner:
    """A sink, its handlers, their threads and the queues between them."""

    def __init__(self, pipeline: Pipeline, name: str) -> None:
        part = pipeline._config.sinks[name]
        self.name = f"sink.{name}"
        self.part: Sink = part.build()
        self.takes_from = frozenset(part.options.sources)
        self._sink_name = name
        self._pipeline = pipeline
        self._metrics = pipeline._metrics
        self._stopping = pipeline._stopping
        self._problem = ""
        self._drained = threading.Event()  # nothing more comes: threads end when their inbox is empty
        self._abandon = threading.Event()
        limit = part.options.queue_bytes
        handlers = [pipeline._config.handlers[handler].build() for handler in pipeline._config.handler_names(name)]
        self._inboxes: list[Inbox[_Item]] = [Inbox(limit) for _ in range(len(handlers) + 1)]
        self._handlers = handlers
        self._threads = [
            threading.Thread(
                target=self._handle, args=(handler, place), name=f"{self.name} {handler.name}", daemon=True
            )
            for place, handler in enumerate(handlers)
        ]
        self._threads.append(threading.Thread(target=self._deliver, name=self.name, daemon=True))

    def start(self) -> None:
        """Start the handlers' engines and the sink, then the threads."""
        for handler in self._handlers:
            _patiently(self._pipeline, f"handler.{handler.name}", handler.start, 1.0)
        _patiently(self._pipeline, self.name, self.part.start, 1.0)
        for thread in self._threads:
            thread.start()

    def take(self, item: _Item) -> bool:
        """Queue a batch; waits while the queue is full. False: the service is stopping, and it was not taken."""
        return self._inboxes[0].put(item, self._stopping)

    def close(self, deadline: float) -> None:
        """Let the threads finish what is queued, until the deadline."""
        self._drained.set()
        for thread in self._threads:
            _join(thread, deadline)
        if any(thread.is_alive() for thread in self._threads):
            waiting = sum(map(len, self._inboxes))
            log.warning("%s: not drained in time, %d batches will be read again after the restart", self.name, waiting)
        self._abandon.set()
        self.part.interrupt()
        for thread in self._threads:
            _join(thread, time.monotonic() + 5)
        self.part.stop()
        for handler in self._handlers:
            handler.stop()

    def status(self) -> Status:
        """The sink's own status, or what is being tried again."""
        return Status(False, self._problem) if self._problem else self.part.status()

    def stats(self) -> Stats:
        """The sink's counters and its queue."""
        queued = sum(inbox.used for inbox in self._inboxes)
        self._metrics.queue(self._sink_name, queued, sum(inbox.limit for inbox in self._inboxes))
        return {**self.part.stats(), "queue_bytes": queued}

    def _handle(self, handler: Handler, place: int) -> None:
        def transform(item: _Item) -> None:
            began = time.monotonic()
            batch = handler.handle(item.batch)
            self._metrics.stage("handle", f"handler.{handler.name}", time.monotonic() - began)
            self._inboxes[place + 1].put(replace(item, batch=batch), self._abandon)

        self._work(place, transform, restart=handler.start)

    def _deliver(self) -> None:
        def write(item: _Item) -> None:
            began = time.monotonic()
            self.part.write(item.batch)
            self._metrics.stage("write", self.name, time.monotonic() - began)
            self._pipeline.source_of(item.batch).done(item.ticket, self.name)

        self._work(len(self._handlers), write, restart=None)

    def _work(self, place: int, work: Callable[[_Item], None], restart: Callable[[], None] | None) -> None:
        inbox = self._inboxes[place]
        while not self._abandon.is_set():
            item = inbox.get(_POLL)
            if item is None:
                if self._drained.is_set() and self._nothing_before(place):
                    return
                continue
            try:
                if not self._persist(item, work, restart):
                    return
            except Exception as error:  # whatever a part raises, the others are stopped in order
                self._pipeline.fail(self.name, error)
                return

    def _persist(self, item: _Item, work: Callable[[_Item], None], restart: Callable[[], None] | None) -> bool:
        """Do the work, as often as it takes; False when it was given up because the service stops."""
        backoff = Backoff(self._pipeline.source_of(item.batch).send_retry_interval, limit=10.0)
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
                self._problem = f"attempt {backoff.attempts + 1} failed: {error}"
                if not self._pipeline.try_again(self.name, error, backoff) and self._abandon.wait(backoff.next()):
                    return False
            else:
                self._problem = ""
                return True

    def _nothing_before(self, place: int) -> bool:
        """Whether no earlier stage can still pass something on."""
        return all(not thread.is_alive() for thread in self._threads[:place]) and not len(self._inboxes[place])


class _Keeper:
    """Stores and confirms positions, in a thread of its own: a disk's sync delays no batch."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Something became durable."""
        self._wake.set()

    def close(self) -> None:
        """Store what is durable now; the last time."""
        self._ending.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            last = self._ending.is_set()
            try:
                for source in self._pipeline.sources.values():
                    source.keep()
            except Exception as error:  # a position that cannot be stored must stop the service
                self._pipeline.fail("store", error)
                return
            if last:
                return


class _Ticker:
    """Writes every part's statistics to the log, every `tickerInterval`."""

    def __init__(self, pipeline: Pipeline, interval: float) -> None:
        self._pipeline = pipeline
        self._interval = interval

    def start(self) -> None:
        if self._interval > 0:
            threading.Thread(target=self._run, name="ticker", daemon=True).start()

    def _run(self) -> None:
        while not self._pipeline._stopping.wait(self._interval):
            for part, stats in self._pipeline.stats().items():
                log.info("%s: %s", part, " ".join(f"{key}={value}" for key, value in stats.items()))


def _patiently(pipeline: Pipeline, part: str, start: Callable[[], None], interval: float) -> None:
    """Start a part; what may pass is tried again for a while, so that all may be started at once.

    After that it is an error like any other: whoever set a wrong address should not wait for ever to hear of it.
    """
    backoff = Backoff(interval, limit=5.0)
    give_up = time.monotonic() + pipeline._config.start_timeout
    while not pipeline._stopping.is_set():
        try:
            return start()
        except StreamerError as error:
            if outcome(error) is not Outcome.RETRY or time.monotonic() > give_up:
                pipeline._metrics.failed(part, error)
                raise _named(part, error) from None
            pipeline.try_again(part, error, backoff)
    return None


def _named(part: str, error: StreamerError) -> StreamerError:
    """The error with the part's name in front, of the same class."""
    return type(error)(f"{part}: {error.what}", error.remedy)


def _compare(name: str, record: Record, fence: Mapping[str, str], source: Source) -> None:
    """PositionRefused when the stored position belongs to another stream than the one that is there now."""
    if getattr(source.options, "wal_position_override", 0):
        return  # the operator says where to start, and accepts what that skips
    differing = [key for key, value in record.fence.items() if fence.get(key, value) != value]
    if differing:
        what = ", ".join(f'{key} "{record.fence[key]}", now "{fence[key]}"' for key in differing)
        raise PositionRefused(
            f"the stored position {record.position} was made with {what}",
            "if that is right, take a new copy of the tables or set walPositionOverride to where to go on; or forget "
            f"the position (psql-streamer position forget {name}) to start where the slot is",
        )


def _join(thread: threading.Thread, deadline: float) -> None:
    if thread.ident is not None:
        thread.join(max(0.0, deadline - time.monotonic()))


def _stop_on_signals(stop: Callable[[], None]) -> None:
    """SIGTERM and SIGINT stop; SIGHUP, which many send to have logs rotated, does nothing."""

    def told(number: int, _frame: FrameType | None) -> None:
        log.info("stopping: %s", signal.Signals(number).name)
        stop()

    signal.signal(signal.SIGTERM, told)
    signal.signal(signal.SIGINT, told)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
