"""The pipeline: builds the parts, starts them, moves batches, acknowledges, stops. The one file to read.

    source thread     start (again, with backoff), read a batch, number it, put it into every sink's inbox
    handler thread    (a sink with handlers) take what waits in the inbox, transform, pass on
    sink thread       write until it is durable (again, with backoff), tell the source's tracker
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
from types import FrameType

from psql_streamer import logs
from psql_streamer.arrow_memory import return_freed_pages
from psql_streamer.config import Config
from psql_streamer.errors import ConfigError
from psql_streamer.interfaces import Service, Severity, Status
from psql_streamer.keeper import Keeper
from psql_streamer.metrics import Metrics
from psql_streamer.model import Stats
from psql_streamer.review import review
from psql_streamer.sink_runner import Item, SinkRunner
from psql_streamer.source_runner import SourceRunner
from psql_streamer.store import Store
from psql_streamer.supervisor import Supervisor

log = logging.getLogger("psql_streamer.pipeline")


def run(config: Config) -> int:
    """Run the service until SIGTERM or SIGINT; the exit code: 0 when told to stop. A failure is raised."""
    # Here, and not at the top: whoever embeds a Pipeline needs no HTTP server.
    from psql_streamer.api import ApiServer, create_app

    metrics = Metrics()
    pipeline = Pipeline(config, metrics)
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


class Pipeline(Service):
    """All sources, handlers and sinks of one configuration.

    start, wait, close in this order; `stop` from anywhere. A failure of any part is raised by start or wait.
    """

    def __init__(self, config: Config, metrics: Metrics) -> None:
        self._config = config
        self._store = Store(config.lmdb, config.lmdb_map_size)
        self._supervisor = Supervisor(metrics, config.start_timeout)
        self._keeper = Keeper(self._supervisor)
        self._sinks = [self._sink(name, metrics) for name in config.sinks]
        self._sources = {name: self._source(name, metrics) for name in config.sources}

    def start(self) -> None:
        """Open the store, start the sinks and their handlers, then the sources."""
        self.start_sinks()
        self.start_sources()

    def start_sinks(self) -> None:
        """Open the store; start the handlers' engines and the sinks."""
        return_freed_pages()
        self._store.open()
        for sink in self._sinks:
            sink.start()

    def start_sources(self) -> None:
        """Compare the configuration with the tables, and begin to stream. ConfigError when rules fit no table."""
        self._review()
        for source in self._sources.values():
            source.start()
        self._keeper.start(self._sources.values())
        if self._config.ticker_interval:
            threading.Thread(target=self._log_statistics, name="ticker", daemon=True).start()

    def wait(self) -> None:
        """Until `stop` is called or a part fails; a failure is raised here."""
        self._supervisor.stopping.wait()
        if self._supervisor.failure is not None:
            raise self._supervisor.failure

    def stop(self) -> None:
        """Begin to stop: nothing more is read."""
        self._supervisor.stopping.set()

    def close(self) -> None:
        """Stop: drain within drainTimeout, remember what was acknowledged, and nothing else, release everything."""
        self._supervisor.stopping.set()
        deadline = time.monotonic() + (0.0 if self._supervisor.failure else self._config.drain_timeout)
        for source in self._sources.values():
            source.join(deadline)
        for sink in self._sinks:
            sink.close(deadline)
        self._keeper.close()
        for source in self._sources.values():
            source.close()
        self._store.close()

    def status(self) -> Mapping[str, Status]:
        """As Service.status."""
        return {runner.name: runner.status() for runner in self._runners()}

    def stats(self) -> Mapping[str, Stats]:
        """As Service.stats."""
        return {runner.name: runner.stats() for runner in self._runners()}

    def set_debug(self, on: bool) -> None:
        """As Service.set_debug."""
        logs.set_debug(on=on)
        for runner in self._runners():
            runner.part.set_debug(on)

    def _review(self) -> None:
        """What of the handlers' and sinks' options does not fit the tables that the sources have now."""
        asked = {name: source.published() for name, source in self._sources.items()}
        published = {name: tables for name, tables in asked.items() if tables is not None}
        errors = []
        for part, finding in review([(sink.part, sink.handlers) for sink in self._sinks], published):
            if finding.severity is Severity.ERROR:
                errors.append(f"{part}: {finding.problem}: {finding.remedy}")
            else:
                log.warning("%s: %s: %s", part, finding.problem, finding.remedy)
        if errors:
            raise ConfigError(errors)

    def _runners(self) -> list[SourceRunner | SinkRunner]:
        return [*self._sources.values(), *self._sinks]

    def _sink(self, name: str, metrics: Metrics) -> SinkRunner:
        handlers = [self._config.handlers[handler].build() for handler in self._config.handler_names(name)]
        return SinkRunner(
            self._config.sinks[name].build(), handlers, metrics, self._supervisor, self._done, self._retry_interval
        )

    def _source(self, name: str, metrics: Metrics) -> SourceRunner:
        sinks = [sink for sink in self._sinks if name in sink.part.options.sources]
        part = self._config.sources[name].build()
        if any(sink.part.wants_transaction_metadata for sink in sinks):
            part.provide_transaction_metadata()
        return SourceRunner(part, sinks, self._store, metrics, self._supervisor, self._keeper.wake)

    def _done(self, item: Item, sink: str) -> None:
        self._sources[item.batch.origin.source].done(item, sink)

    def _retry_interval(self, source: str) -> float:
        return self._config.sources[source].options.send_retry_interval

    def _log_statistics(self) -> None:
        while not self._supervisor.stopping.wait(self._config.ticker_interval):
            for part, stats in self.stats().items():
                log.info("%s: %s", part, " ".join(f"{key}={value}" for key, value in stats.items()))


def _stop_on_signals(stop: Callable[[], None]) -> None:
    """SIGTERM and SIGINT stop; SIGHUP, which many send to have logs rotated, does nothing."""

    def told(number: int, _frame: FrameType | None) -> None:
        log.info("stopping: %s", signal.Signals(number).name)
        stop()

    signal.signal(signal.SIGTERM, told)
    signal.signal(signal.SIGINT, told)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
