"""The pipeline: builds the parts, starts them, moves batches, acknowledges, stops. The one file to read.

    source thread     start (again, with backoff), read a batch, number it, put it into every sink's queue
    handler thread    (a sink with handlers) take what waits in the queue, transform, pass on
    sink thread       write until it is durable (again, with backoff), tell the source's tracker
    checkpointer thread     what every sink has: store the position (LMDB, synced), then confirm it to the source

A batch counts when every sink has it; the store learns it before the server does. Whatever errors.OUTCOMES calls
`stop` ends the whole service with its message: a lifecycle that restarts it shows the message again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from functools import partial

from psql_streamer import logs
from psql_streamer.bounded import Call
from psql_streamer.checkpoint.checkpointer import Checkpointer
from psql_streamer.checkpoint.sink_memory import StoredSinkMemory
from psql_streamer.checkpoint.store import Store
from psql_streamer.config import Config
from psql_streamer.errors import ConfigError, StoreError
from psql_streamer.interfaces import Service, Severity, Source, Status
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.model import Stats
from psql_streamer.pipeline.arrow_memory import return_freed_pages
from psql_streamer.pipeline.frozen_objects import freeze_objects
from psql_streamer.pipeline.handler_instances import choose_worst_by_name, sum_by_name
from psql_streamer.pipeline.item import Item
from psql_streamer.pipeline.lifecycle import Lifecycle
from psql_streamer.pipeline.malloc_arenas import share_arenas
from psql_streamer.pipeline.shutdown import Shutdown, describe_places
from psql_streamer.pipeline.sink_runner import SinkRunner
from psql_streamer.pipeline.snapshots import SnapshotsOfSources
from psql_streamer.pipeline.source_runner import SourceRunner
from psql_streamer.pipeline.transactions import Described
from psql_streamer.review import review
from psql_streamer.snapshot_figures import show_briefly

log = logging.getLogger("psql_streamer.pipeline")

_GIVE_UP_SECONDS, _STORE_SECONDS, _RELEASE_SECONDS = 1.0, 1.0, 1.5
"""The time that the steps of a stop may take: interrupted threads, the last position, clients and engines."""

LEAVE_SECONDS = 4.0
"""Seconds behind drainTimeout after which the process ends, whatever still hangs. With what it takes to say so it is
below the 5 seconds that the documentation promises."""


def run(config: Config) -> int:
    """Run the service until SIGTERM or SIGINT; the exit code: 0 when told to stop. A failure is raised.

    It ends within drainTimeout and some seconds, whatever hangs.
    """
    # Here, and not at the top: whoever embeds a Pipeline needs no HTTP server.
    from psql_streamer.api.app import ApiServer, create_app

    metrics = Metrics(config.metric_tables)
    pipeline = Pipeline(config, metrics)
    api = ApiServer(create_app(pipeline, metrics, config.http_token), config.http.host, config.http.port)

    def leave() -> None:
        logs.wait_no_longer()
        shutdown.begin(pipeline.stop_seconds)

    def stop() -> None:
        pipeline.stop()
        leave()

    shutdown = Shutdown(stop)
    shutdown.listen()
    api.start()
    try:
        pipeline.start_sinks()
        freeze_objects()
        pipeline.start_sources()
        pipeline.wait()
    finally:
        leave()
        pipeline.close()
        api.stop()
    pipeline.raise_failure()
    return 0


class Pipeline(Service):
    """All sources, handlers and sinks of one configuration.

    start, wait, close in this order; `stop` from anywhere. A failure of any part is raised by start or wait.
    """

    def __init__(self, config: Config, metrics: Metrics) -> None:
        self._config = config
        self._store = Store(config.lmdb, config.lmdb_map_size)
        self._lifecycle = Lifecycle(metrics, config.start_timeout)
        self._checkpointer = Checkpointer(partial(self._lifecycle.fail, "store"))
        self._streaming = False
        self._sinks = [self._make_sink_runner(name, metrics) for name in config.sinks]
        taken = {name for sink in self._sinks for name in sink.part.options.sources}
        self._sources = {name: self._make_source_runner(name, metrics) for name in config.sources if name in taken}
        left_alone = [name for name in config.sources if name not in taken]
        self._attach_handlers()
        self._left_alone = {f"source.{name}": _describe_left_alone(config.sources[name].cls) for name in left_alone}
        self.snapshots = SnapshotsOfSources(
            {name: runner.snapshots for name, runner in self._sources.items()}, left_alone
        )
        metrics.expect(name for name in self.status() if name not in self._left_alone)

    def start(self) -> None:
        """Open the store, start the sinks and their handlers, then the sources."""
        self.start_sinks()
        self.start_sources()

    def start_sinks(self) -> None:
        """Open the store; start the handlers' engines and the sinks."""
        return_freed_pages()
        share_arenas()
        self._store.open()
        for source in self._sources.values():
            source.load()
        for sink in self._sinks:
            sink.start()

    def start_sources(self) -> None:
        """Compare the configuration with the tables, and begin to stream. ConfigError when rules fit no table."""
        for name, reason in self._left_alone.items():
            log.warning("%s: %s", name, reason)
        self._review()
        self._streaming = True
        # A source is at work while those behind it wait for their servers, or end the service in the end.
        self._checkpointer.start(source.checkpoint for source in self._sources.values())
        for source in self._sources.values():
            source.start()
        if self._config.ticker_interval:
            threading.Thread(target=self._log_statistics, name="ticker", daemon=True).start()

    def wait(self) -> None:
        """Until `stop` is called or a part fails; a failure is raised here."""
        self._lifecycle.stopping.wait()
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise what a part failed with, if one did."""
        if self._lifecycle.failure is not None:
            raise self._lifecycle.failure

    @property
    def stop_seconds(self) -> float:
        """How long a stop may take from now on."""
        return (self._config.drain_timeout if self._streaming else 0.0) + LEAVE_SECONDS

    def stop(self) -> None:
        """Begin to stop: nothing more is read."""
        self._lifecycle.stopping.set()

    def close(self) -> None:
        """Stop: drain within drainTimeout, remember what was acknowledged, and nothing else, release everything.

        What hangs is left behind: no step waits for longer than its share of LEAVE_SECONDS. Positions that are not
        stored are a failure: see raise_failure.
        """
        if self._streaming and self._lifecycle.failure is not None:
            # Also told at the end, which may be a while, or never come.
            log.error("stopping: %s", self._lifecycle.failure)
        self._lifecycle.stopping.set()
        self._drain()
        ended = self._checkpointer.close(_STORE_SECONDS)
        if not ended and any(source.unstored for source in self._sources.values()):
            error = StoreError(
                f"positions were not stored within {_STORE_SECONDS} s", "look at the disk that lmdb is on"
            )
            self._lifecycle.fail("store", error)
        for source in self._sources.values():
            source.log_end()
        hanging = [*self._release(), *self._checkpointer.hanging, *self._lifecycle.hanging]
        if hanging:
            log.error("left behind, because it does not end: %s", "; ".join(describe_places(hanging)))
        for source in self._sources.values():
            source.interrupt()
        if ended:
            self._store.close()

    def status(self) -> Mapping[str, Status]:
        """See Service.status."""
        return {
            **{name: Status(True, reason) for name, reason in self._left_alone.items()},
            **{runner.name: runner.status() for runner in self._sources.values()},
            **choose_worst_by_name(sink.collect_handler_status() for sink in self._sinks),
            **{runner.name: runner.status() for runner in self._sinks},
        }

    def stats(self) -> Mapping[str, Stats]:
        """See Service.stats."""
        return {
            **{runner.name: runner.stats() for runner in self._sources.values()},
            **sum_by_name(sink.collect_handler_stats() for sink in self._sinks),
            **{runner.name: runner.stats() for runner in self._sinks},
        }

    def set_debug(self, on: bool) -> None:
        """See Service.set_debug."""
        logs.set_debug(on=on)
        for runner in self._list_runners():
            runner.part.set_debug(on)

    def _drain(self) -> None:
        """Let what was read become durable until the deadline, then make the threads give up."""
        deadline = time.monotonic() + (0.0 if self._lifecycle.failure else self._config.drain_timeout)
        for source in self._sources.values():
            source.join(deadline)
        for sink in self._sinks:
            sink.drain(deadline)
        for sink in self._sinks:
            sink.interrupt()
        deadline = time.monotonic() + _GIVE_UP_SECONDS
        for sink in self._sinks:
            sink.leave(deadline)
        # Behind a failure none was waited for above, and a source must not be stopped under its own thread.
        for source in self._sources.values():
            source.join(deadline)

    def _release(self) -> list[str]:
        """Release clients and engines; the names of threads that do not end."""
        calls = [Call(runner.stop, f"stop {runner.name}") for runner in self._list_runners()]
        deadline = time.monotonic() + _RELEASE_SECONDS
        for call in calls:
            call.wait(deadline - time.monotonic(), threading.Event())
        return [name for sink in self._sinks for name in sink.hanging] + [call.name for call in calls if not call.ended]

    def _review(self) -> None:
        """What of the handlers' and sinks' options does not fit the tables that the sources have now."""
        asked = {name: source.list_published() for name, source in self._sources.items()}
        published = {name: tables for name, tables in asked.items() if tables is not None}
        errors = []
        for part, finding in review([(sink.part, sink.handlers) for sink in self._sinks], published):
            if finding.severity is Severity.ERROR:
                errors.append(f"{part}: {finding.problem}: {finding.remedy}")
            else:
                log.warning("%s: %s: %s", part, finding.problem, finding.remedy)
        if errors:
            raise ConfigError(errors)

    def _list_runners(self) -> list[SourceRunner | SinkRunner]:
        return [*self._sources.values(), *self._sinks]

    def _make_sink_runner(self, name: str, metrics: Metrics) -> SinkRunner:
        part = self._config.sinks[name].build()
        part.attach(StoredSinkMemory(self._store, name))
        return SinkRunner(
            part,
            self._config.build_handlers(name),
            metrics,
            self._lifecycle,
            self._wake_sources,
            self._acknowledge,
            self._retry_interval,
            self._describe,
        )

    def _make_source_runner(self, name: str, metrics: Metrics) -> SourceRunner:
        sinks = [sink for sink in self._sinks if name in sink.part.options.sources]
        part = self._config.sources[name].build()
        if any(sink.part.wants_transaction_metadata for sink in sinks):
            part.provide_transaction_metadata()
        return SourceRunner(
            part, sinks, self._store, metrics, self._lifecycle, self._checkpointer.wake, self._config.allows_circles
        )

    def _attach_handlers(self) -> None:
        """Handlers may read tables of all sources, also of those that are not started."""
        parts = {
            name: self._sources[name].part if name in self._sources else source.build()
            for name, source in self._config.sources.items()
        }
        lmdb = self._config.lmdb
        for sink in self._sinks:
            for handler in sink.handlers:
                handler.attach(parts, lmdb.with_name(f"{lmdb.name}-handlers") / sink.part.name / handler.name)

    def _wake_sources(self) -> None:
        for source in self._sources.values():
            source.wake()

    def _acknowledge(self, item: Item, sink: str) -> None:
        self._sources[item.batch.source.name].acknowledge(item, sink)

    def _describe(self, item: Item) -> Described:
        return self._sources[item.batch.source.name].describe(item)

    def _retry_interval(self, source: str) -> float:
        return self._config.sources[source].options.send_retry_interval

    def _log_statistics(self) -> None:
        with_snapshots = {runner.name for runner in self._sources.values() if runner.snapshots.are_taken}
        while not self._lifecycle.stopping.wait(self._config.ticker_interval):
            for part, stats in self.stats().items():
                brief = {"snapshots": show_briefly(stats["snapshots"])} if part in with_snapshots else {}
                counters = {**stats, **brief}
                log.info("%s: %s", part, " ".join(f"{key}={value}" for key, value in counters.items()))


def _describe_left_alone(source: type[Source]) -> str:
    """The reason of a source that no sink names."""
    reason = "no sink takes from it: it is not started"
    return f"{reason}, and {source.when_left_alone}" if source.when_left_alone else reason
