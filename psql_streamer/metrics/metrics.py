"""What Prometheus scrapes.

The pipeline pushes what only it knows, as it happens: batches, stages, retries, errors. What the parts
count themselves (Source.stats, Sink.stats) and how they are doing (Service.status) is read when somebody
scrapes, so that /metrics, /stats and /status always agree, also while the pipeline is stuck.

Parts are named as in Service.status: `source.db1`, `sink.kafka1`, `store`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from psql_streamer import __version__
from psql_streamer.interfaces import Service
from psql_streamer.metrics.families import METRIC_PREFIX
from psql_streamer.metrics.pending import Pending
from psql_streamer.metrics.scrape import Scrape
from psql_streamer.metrics.table_counts import TableCounts
from psql_streamer.model import Batch

log = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of `Metrics.render`."""

Stage = Literal["decode", "handle", "write", "store"]

_BATCH_ROWS = (1, 10, 100, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000)
_STAGE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


_EXPECTED_ERRORS = {"source": "SourceUnavailable", "handler": "HandlerUnavailable", "sink": "SinkUnavailable"}


class Metrics:
    """The metrics of one service. Every method is quick and may be called from any thread.

    most_tables: tables that get series of their own, in the order in which they come; the rest is counted together, so
    that a database that makes tables all day does not fill Prometheus. Prefixes of logical messages have a bound of
    their own, MOST_PREFIXES or this one if it is lower.
    """

    def __init__(self, most_tables: int = 2000) -> None:
        # Without this the client adds a `_created` series to every counter and histogram, which nobody reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library does not annotate it
        self._registry = CollectorRegistry()
        self._most_tables = most_tables
        self._tables = TableCounts(most_tables)
        self._pending = Pending()
        self._scrape = Scrape(self._tables, self._pending, most_tables)
        self._registry.register(self._scrape)
        self._batch_rows = self._make_histogram("batch_rows", "Changes in a micro-batch.", _BATCH_ROWS, "source")
        self._stage_seconds = self._make_histogram(
            "stage_seconds", "Time a micro-batch spends in a stage of the pipeline.", _STAGE_SECONDS, "stage", "part"
        )
        self._series: dict[tuple[Histogram, *tuple[str, ...]], Histogram] = {}
        self._retries = self._make_counter("retries_total", "Attempts after an error that may pass.", "part")
        self._errors = self._make_counter("errors_total", "Errors that a part raised, by their class.", "part", "class")
        self._make_gauge("build_info", "Always 1; the label is the version.", "version").labels(__version__).set(1)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def expect(self, parts: Iterable[str]) -> None:
        """These parts will report: their counters begin at 0, so that the first increase shows as one."""
        for part in parts:
            kind, _, name = part.partition(".")
            self._retries.labels(part)
            self._errors.labels(part, _EXPECTED_ERRORS[kind])
            if kind == "source":
                self._batch_rows.labels(name)
                self._pending.expect(name)

    def count_batch(self, source: str, batch: Batch, batch_number: int) -> None:
        """A source gave a batch: as decoded, before any handler saw it. batch_number: the Tracker's."""
        self._tables.add(source, batch)
        self._pending.add(source, batch, batch_number)
        if rows := len(batch):
            self._look_up_series(self._batch_rows, source).observe(rows)

    def note_stored(self, source: str, batch_number: int) -> None:
        """Every batch of a source up to this one is durable in every sink, and the position store says so."""
        self._pending.drop_stored(source, batch_number)

    def observe_stage(self, stage: Stage, part: str, seconds: float) -> None:
        """A batch passed a stage of a part in so many seconds."""
        self._look_up_series(self._stage_seconds, stage, part).observe(seconds)

    def count_retry(self, part: str) -> None:
        """A part is tried again after an error that may pass."""
        self._retries.labels(part).inc()

    def count_error(self, part: str, error: BaseException) -> None:
        """A part raised an error."""
        self._errors.labels(part, type(error).__name__).inc()

    def watch(self, service: Service) -> None:
        """Read `service.status()` and `service.stats()` at every scrape from now on."""
        self._scrape.service = service

    def render(self) -> bytes:
        """Everything, in Prometheus' text format (CONTENT_TYPE)."""
        return generate_latest(self._registry)

    def _look_up_series(self, histogram: Histogram, *labels: str) -> Histogram:
        """The histogram of these labels, for which the client itself takes a lock each time."""
        key: tuple[Histogram, *tuple[str, ...]] = (histogram, *labels)
        if key not in self._series:
            self._series[key] = histogram.labels(*labels)
        return self._series[key]

    def _make_counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, labels, METRIC_PREFIX, registry=self._registry)

    def _make_gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(name, what, labels, METRIC_PREFIX, registry=self._registry)

    def _make_histogram(self, name: str, what: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, what, labels, METRIC_PREFIX, buckets=buckets, registry=self._registry)
