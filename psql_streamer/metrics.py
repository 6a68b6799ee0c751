"""What Prometheus scrapes.

The pipeline pushes what only it knows, as it happens: batches, stages, retries, errors. What the parts
count themselves (Source.stats, Sink.stats) and how they are doing (Service.status) is read when somebody
scrapes, so that /metrics, /stats and /status always agree, also while the pipeline is stuck.

Parts are named as in Service.status: `source.db1`, `sink.kafka1`, `store`.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Literal

import numpy as np
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
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from psql_streamer import __version__
from psql_streamer.binary_columns import nbytes, offsets
from psql_streamer.interfaces import Service
from psql_streamer.model import Batch, Changes, Op, Position, Stats

log = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of `Metrics.render`."""

Stage = Literal["decode", "handle", "write", "store"]

_PREFIX = "psql_streamer"
_BATCH_ROWS = (1, 10, 100, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000)
_STAGE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


OTHERS = "(others)"
"""In place of a table's name: all tables beyond those that have series of their own."""

_MAY_PASS = {"source": "SourceUnavailable", "handler": "HandlerUnavailable", "sink": "SinkUnavailable"}


class Metrics:
    """The metrics of one service. Every method is quick and may be called from any thread.

    most_tables: tables (and prefixes of logical messages) that get series of their own, in the order in which they
    come; the rest is counted together, so that a database that makes tables all day does not fill Prometheus.
    """

    def __init__(self, most_tables: int = 2000) -> None:
        # Without this the client adds a `_created` series to every counter and histogram, which nobody reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library does not annotate it
        self._registry = CollectorRegistry()
        self._most_tables = most_tables
        self._tables = _TableCounts(most_tables)
        self._pending = _Pending()
        self._scrape = _Scrape(self._tables, self._pending, most_tables)
        self._registry.register(self._scrape)
        self._batch_rows = self._histogram("batch_rows", "Changes in a micro-batch.", _BATCH_ROWS, "source")
        self._stage_seconds = self._histogram(
            "stage_seconds", "Time a micro-batch spends in a stage of the pipeline.", _STAGE_SECONDS, "stage", "part"
        )
        self._retries = self._counter("retries_total", "Attempts made again after an error that may pass.", "part")
        self._errors = self._counter("errors_total", "Errors that a part raised, by their class.", "part", "class")
        self._gauge("build_info", "Always 1; the labels say what runs.", "version").labels(__version__).set(1)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def expect(self, parts: Iterable[str]) -> None:
        """These parts will report: their counters begin at 0, so that the first increase shows as one."""
        for part in parts:
            kind, _, name = part.partition(".")
            self._retries.labels(part)
            self._errors.labels(part, _MAY_PASS[kind])
            if kind == "source":
                self._batch_rows.labels(name)
                self._pending.expect(name)

    def batch_received(self, source: str, batch: Batch) -> None:
        """A source gave a batch: as decoded, before any handler saw it."""
        self._tables.add(source, batch)
        self._pending.received(source, batch)
        if rows := len(batch):
            self._batch_rows.labels(source).observe(rows)

    def position_stored(self, source: str, position: Position) -> None:
        """Everything of a source up to `position` is durable in every sink, and the position store says so."""
        self._pending.stored(source, position)

    def stage(self, stage: Stage, part: str, seconds: float) -> None:
        """A batch passed a stage of a part in this time."""
        self._stage_seconds.labels(stage, part).observe(seconds)

    def retried(self, part: str) -> None:
        """A part is tried again after an error that may pass."""
        self._retries.labels(part).inc()

    def failed(self, part: str, error: BaseException) -> None:
        """A part raised an error."""
        self._errors.labels(part, type(error).__name__).inc()

    def watch(self, service: Service) -> None:
        """From now on read `service.status()` and `service.stats()` at every scrape."""
        self._scrape.service = service

    def render(self) -> bytes:
        """Everything, in Prometheus' text format (CONTENT_TYPE)."""
        return generate_latest(self._registry)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, labels, _PREFIX, registry=self._registry)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(name, what, labels, _PREFIX, registry=self._registry)

    def _histogram(self, name: str, what: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, what, labels, _PREFIX, buckets=buckets, registry=self._registry)


_Labels = tuple[str, ...]


class _TableCounts:
    """Events and bytes by source, schema, table and action, in plain dicts.

    The client's own Counter takes a lock and several objects for every series: too much for 10,000 tables.
    """

    def __init__(self, most_tables: int) -> None:
        self._most_tables = most_tables
        self._own_series: set[tuple[str, str, str]] = set()
        self._lock = Lock()
        self._events: dict[_Labels, float] = {}
        self._bytes: dict[_Labels, float] = {}

    def add(self, source: str, batch: Batch) -> None:
        counted = list(_counted(batch))
        with self._lock:
            for schema, table, op, rows, size in counted:
                key = (source, *self._series(source, schema, table), op.action)
                self._events[key] = self._events.get(key, 0) + rows
                self._bytes[key] = self._bytes.get(key, 0) + size

    def _series(self, source: str, schema: str, table: str) -> tuple[str, str]:
        own = self._own_series
        if (source, schema, table) in own:
            return schema, table
        if len(own) >= self._most_tables:
            return "", OTHERS
        own.add((source, schema, table))
        if len(own) == self._most_tables:
            log.warning(
                "metrics: %d tables have series of their own; from the next on they are counted together as %s: "
                "raise metricTables if Prometheus can take more",
                *(self._most_tables, OTHERS),
            )
        return schema, table

    def snapshot(self) -> tuple[Mapping[_Labels, float], Mapping[_Labels, float]]:
        """Events and bytes so far."""
        with self._lock:
            return self._events.copy(), self._bytes.copy()


class _Pending:
    """Batches that were received and are not stored yet; they are what lag is made of."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._stored: dict[str, Position] = {}
        self._commits: dict[str, deque[tuple[Position, float]]] = {}

    def expect(self, source: str) -> None:
        self._commits.setdefault(source, deque())

    def received(self, source: str, batch: Batch) -> None:
        with self._lock:
            commits = self._commits.setdefault(source, deque())
            # A source that started over gives the same changes again.
            while commits and _order(commits[-1][0]) >= _order(batch.position):
                commits.pop()
            if len(batch.transactions):
                commits.append((batch.position, float(batch.transactions.commit_ts[0]) / 1e6))

    def stored(self, source: str, position: Position) -> None:
        with self._lock:
            self._stored[source] = position
            commits = self._commits.setdefault(source, deque())
            while commits and _order(commits[0][0]) <= _order(position):
                commits.popleft()

    def positions(self) -> Mapping[str, Position]:
        """By source, what the store says."""
        with self._lock:
            return self._stored.copy()

    def lags(self, now: float) -> Mapping[str, float]:
        """By source, the age in seconds of the oldest change that is not durable; 0 when there is none.

        The age of the newest durable change would jump to hours with the first change after a quiet night.
        """
        with self._lock:
            # Two machines' clocks: a commit may seem to lie in the future.
            return {name: max(0.0, now - commits[0][1]) if commits else 0.0 for name, commits in self._commits.items()}


@dataclass(frozen=True)
class _PartStat:
    """A key of a part's stats, and the metric that shows it."""

    kind: Literal["source", "sink"]
    key: str
    family: type[CounterMetricFamily | GaugeMetricFamily]
    metric: str
    what: str


_PART_STATS = (
    _PartStat(
        "source",
        "lag_bytes",
        GaugeMetricFamily,
        "lag_bytes",
        "WAL between the stored position and the server's end of WAL, whatever tables it is of.",
    ),
    _PartStat(
        "source",
        "keys_in_doubt",
        CounterMetricFamily,
        "keys_in_doubt",
        "Times that a table with identity FULL had rows whose primary key at their time is not certain.",
    ),
    _PartStat("source", "reconnects", CounterMetricFamily, "reconnects", "Connections to the server made again."),
    _PartStat("sink", "events", CounterMetricFamily, "sink_events", "Events that are durable in the sink."),
    _PartStat("sink", "bytes", CounterMetricFamily, "sink_bytes", "Keys and values that are durable in the sink."),
    _PartStat("sink", "batches", CounterMetricFamily, "sink_batches", "Micro-batches that are durable in the sink."),
    _PartStat("sink", "excluded", CounterMetricFamily, "sink_excluded", "Changes of tables that the sink leaves out."),
    _PartStat("sink", "queue_bytes", GaugeMetricFamily, "queue_bytes", "Memory of the batches that wait for the sink."),
    _PartStat("sink", "queue_limit_bytes", GaugeMetricFamily, "queue_limit_bytes", "How much that may be."),
    _PartStat("sink", "dead_lettered", CounterMetricFamily, "dead_lettered", "Records that went to the dead letters."),
)


class _Scrape(Collector):
    """What is read at a scrape, as Prometheus' metric families."""

    def __init__(self, tables: _TableCounts, pending: _Pending, most_tables: int) -> None:
        self.service: Service | None = None
        self._most_tables = most_tables
        self._tables = tables
        self._pending = pending

    def collect(self) -> Iterator[Metric]:
        yield from self._of_tables()
        stats = self.service.stats() if self.service else {}
        yield self._positions(stats)
        yield _family(GaugeMetricFamily, "lag_seconds", _LAG, ("source",), _keyed(self._pending.lags(time.time())))
        for stat in _PART_STATS:
            values = {
                name: part[stat.key] for name, part in _of_kind(stat.kind, stats) if part.get(stat.key) is not None
            }
            yield _family(stat.family, stat.metric, stat.what, (stat.kind,), _keyed(values))
        yield _family(
            CounterMetricFamily, "sink_skipped", _SKIPPED, ("sink", "table"), _skipped(stats, self._most_tables)
        )
        status = self.service.status() if self.service else {}
        up = {part: int(is_now.ok) for part, is_now in status.items()}
        yield _family(GaugeMetricFamily, "up", "1 when the part is well, as in /status, else 0.", ("part",), _keyed(up))

    def _of_tables(self) -> Iterator[Metric]:
        events, sizes = self._tables.snapshot()
        labels = ("source", "schema", "table", "action")
        yield _family(CounterMetricFamily, "events", "Changes received.", labels, events)
        yield _family(
            CounterMetricFamily, "event_bytes", "Column values received, as PostgreSQL's text.", labels, sizes
        )

    def _positions(self, stats: Mapping[str, Stats]) -> Metric:
        values: dict[_Labels, float] = {
            (source, "stored"): position.lsn for source, position in self._pending.positions().items()
        }
        for source, part in _of_kind("source", stats):
            for kind in ("server", "received", "confirmed"):
                if (lsn := part.get(f"{kind}_lsn")) is not None:
                    values[source, kind] = lsn
        return _family(GaugeMetricFamily, "position_lsn", "Positions in the WAL, in bytes.", ("source", "kind"), values)


_LAG = "Age of the oldest change that was received and is not durable; 0 when there is none."
_SKIPPED = "Changes that no rule gives a topic."


def _family(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    what: str,
    labels: _Labels,
    values: Mapping[_Labels, float],
) -> Metric:
    family = kind(f"{_PREFIX}_{name}", what, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _keyed(values: Mapping[str, float]) -> Mapping[_Labels, float]:
    return {(name,): value for name, value in values.items()}


def _of_kind(kind: str, stats: Mapping[str, Stats]) -> Iterator[tuple[str, Stats]]:
    """Names without `source.` or `sink.`, which the label says already."""
    for part, values in stats.items():
        if part.startswith(f"{kind}."):
            yield part.removeprefix(f"{kind}."), values


def _skipped(stats: Mapping[str, Stats], most_tables: int) -> Mapping[_Labels, float]:
    """By sink and table, up to so many tables a sink; a sink that only counts has the empty table."""
    values: dict[_Labels, float] = {}
    for sink, part in _of_kind("sink", stats):
        skipped = part.get("skipped", {})
        by_table = skipped if isinstance(skipped, Mapping) else {"": skipped}
        for place, (table, count) in enumerate(by_table.items()):
            key = (sink, table if place < most_tables else OTHERS)
            values[key] = values.get(key, 0) + count
    return values


def _counted(batch: Batch) -> Iterator[tuple[str, str, Op, int, int]]:
    """(schema, table, op, changes, bytes of all column values, old and new); a message counts its content."""
    for change in batch.changes:
        for op, rows, size in _counted_by_op(change):
            yield change.relation.schema, change.relation.table, op, rows, size
    for truncate in batch.truncates:
        yield truncate.relation.schema, truncate.relation.table, Op.TRUNCATE, 1, 0
    for message in batch.messages:
        yield "", message.prefix, Op.MESSAGE, 1, len(message.content)


def _counted_by_op(change: Changes) -> Iterator[tuple[Op, int, int]]:
    rows = np.bincount(change.op)
    ops = np.flatnonzero(rows).tolist()
    images = (change.after, change.before)
    if len(ops) == 1:
        yield Op(ops[0]), len(change), sum(nbytes(column) for image in images for column in image.columns)
        return
    sizes = np.zeros(len(change), dtype=np.int64)
    for image in images:
        for column in image.columns:
            sizes[image.rows] += np.diff(offsets(column))
    by_op = np.bincount(change.op, weights=sizes)
    for op in ops:
        yield Op(op), int(rows[op]), int(by_op[op])


def _order(position: Position) -> tuple[int, int, int]:
    return position.lsn, position.commit_lsn, position.changes
