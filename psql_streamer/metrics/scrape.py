"""The metrics that are read from the parts and the pipeline when Prometheus scrapes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from psql_streamer.interfaces import Service
from psql_streamer.metrics.families import family, keyed
from psql_streamer.metrics.lookup_metrics import lookup_metrics
from psql_streamer.metrics.pending import Pending
from psql_streamer.metrics.snapshot_metrics import SnapshotMetrics
from psql_streamer.metrics.table_counts import Labels, TableCounts
from psql_streamer.model import Stats
from psql_streamer.name_counts import OTHERS


@dataclass(frozen=True)
class _PartStat:
    """A key of a part's stats, and the metric that shows it."""

    kind: Literal["source", "handler", "sink"]
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
        "WAL between the stored position and the server's end of WAL, of all tables.",
    ),
    _PartStat(
        "source",
        "keys_in_doubt",
        CounterMetricFamily,
        "keys_in_doubt",
        "Cases in which the primary key of rows of a table with REPLICA IDENTITY FULL is not certain.",
    ),
    _PartStat(
        "source",
        "cascaded_tables",
        GaugeMetricFamily,
        "cascaded_tables",
        "Tables whose rows foreign keys change without the binary log.",
    ),
    _PartStat(
        "source", "lag_records", GaugeMetricFamily, "lag_records", "Records between a group and its topics' ends."
    ),
    _PartStat(
        "source", "tombstones", CounterMetricFamily, "source_tombstones", "Records that were read without a value."
    ),
    _PartStat(
        "source",
        "tombstone_deletes",
        CounterMetricFamily,
        "source_tombstone_deletes",
        "Records without a value that became deletes.",
    ),
    _PartStat(
        "source",
        "unknown_tombstones",
        CounterMetricFamily,
        "source_unknown_tombstones",
        "Records without a value that were left out, because no record says of which table they are.",
    ),
    _PartStat(
        "source",
        "headers_left_out",
        CounterMetricFamily,
        "source_headers_left_out",
        "Headers of records that did not go out with their rows.",
    ),
    _PartStat(
        "source",
        "dead_lettered",
        CounterMetricFamily,
        "source_dead_lettered",
        "Records that were no events and were put aside.",
    ),
    _PartStat(
        "source", "registry_lookups", CounterMetricFamily, "registry_lookups", "Answers of a source's schema registry."
    ),
    _PartStat(
        "source",
        "registry_failures",
        CounterMetricFamily,
        "registry_failures",
        "Attempts to ask a source's schema registry that had no answer.",
    ),
    _PartStat("source", "rebalances", CounterMetricFamily, "rebalances", "Rebalances that gave or took partitions."),
    _PartStat("source", "reconnects", CounterMetricFamily, "reconnects", "Reconnections to the server."),
    _PartStat("source", "rows", CounterMetricFamily, "source_rows", "Rows that a source found by polling."),
    _PartStat("source", "polls", CounterMetricFamily, "source_polls", "Polls of a source."),
    _PartStat(
        "source",
        "unsettled_rows",
        GaugeMetricFamily,
        "unsettled_rows",
        "Rows that were seen and wait for transactions that may have written smaller keys.",
    ),
    _PartStat(
        "source",
        "last_row_age_seconds",
        GaugeMetricFamily,
        "last_row_age_seconds",
        "Time since a source last read a row.",
    ),
    _PartStat("handler", "rows", CounterMetricFamily, "handler_rows", "Rows that went through the handler's rules."),
    _PartStat(
        "handler",
        "passed_unknown",
        CounterMetricFamily,
        "handler_passed_unknown",
        "Rows that a rule could not judge and that passed.",
    ),
    _PartStat(
        "handler",
        "unaddressed",
        CounterMetricFamily,
        "handler_unaddressed",
        "Rows that lack values of which a rule makes their topic, key or headers.",
    ),
    _PartStat(
        "handler",
        "fields_left_out",
        CounterMetricFamily,
        "handler_fields_left_out",
        "Fields of JSON documents that the type of a rule does not name.",
    ),
    _PartStat(
        "handler",
        "nulled",
        CounterMetricFamily,
        "handler_nulled",
        "Values that a rule could not compute and that became null, and conditions that let their rows pass.",
    ),
    _PartStat(
        "handler", "dead_lettered", CounterMetricFamily, "handler_dead_lettered", "Rows that a rule could not process."
    ),
    _PartStat(
        "handler", "engine_restarts", CounterMetricFamily, "handler_engine_restarts", "Engines that were started again."
    ),
    _PartStat(
        "handler",
        "executors",
        GaugeMetricFamily,
        "handler_executors",
        "Executors that a Spark cluster gives at present.",
    ),
    _PartStat("sink", "events", CounterMetricFamily, "sink_events", "Events that are durable in the sink."),
    _PartStat("sink", "bytes", CounterMetricFamily, "sink_bytes", "Keys and values that are durable in the sink."),
    _PartStat("sink", "batches", CounterMetricFamily, "sink_batches", "Micro-batches that are durable in the sink."),
    _PartStat("sink", "transactions", CounterMetricFamily, "sink_transactions", "Transactions that are committed."),
    _PartStat(
        "sink",
        "transactions_written_again",
        CounterMetricFamily,
        "sink_transactions_written_again",
        "Transactions that were given up and written again.",
    ),
    _PartStat("sink", "excluded", CounterMetricFamily, "sink_excluded", "Changes of tables that the sink leaves out."),
    _PartStat(
        "sink",
        "request_bytes",
        GaugeMetricFamily,
        "sink_request_bytes",
        "The most bytes of a request, where a topic takes no larger ones.",
    ),
    _PartStat("sink", "queue_bytes", GaugeMetricFamily, "queue_bytes", "Memory of the batches that wait for the sink."),
    _PartStat("sink", "queue_limit_bytes", GaugeMetricFamily, "queue_limit_bytes", "The limit of queue_bytes."),
    _PartStat("sink", "dead_lettered", CounterMetricFamily, "dead_lettered", "Records in the dead-letter topic."),
)


class Scrape(Collector):
    """What is read at a scrape, as Prometheus' metric families."""

    def __init__(self, tables: TableCounts, pending: Pending, most_tables: int) -> None:
        self.service: Service | None = None
        self._most_tables = most_tables
        self._tables = tables
        self._pending = pending
        self._snapshots = SnapshotMetrics()

    def collect(self) -> Iterator[Metric]:
        yield from self._collect_tables()
        stats = self.service.stats() if self.service else {}
        yield self._positions(stats)
        yield self._cursors(stats)
        yield self._partition_lags(stats)
        yield family(GaugeMetricFamily, "lag_seconds", _LAG, ("source",), keyed(self._pending.lags(time.time())))
        for stat in _PART_STATS:
            values = {
                name: part[stat.key] for name, part in _select_kind(stat.kind, stats) if part.get(stat.key) is not None
            }
            yield family(stat.family, stat.metric, stat.what, (stat.kind,), keyed(values))
        for by_name in _BY_NAME:
            counted = _count_by_name(stats, by_name.key, self._most_tables)
            yield family(CounterMetricFamily, f"sink_{by_name.key}", by_name.what, ("sink", by_name.label), counted)
        yield from lookup_metrics(stats)
        yield from self._snapshots.collect(self.service.snapshots.known() if self.service else {})
        status = self.service.status() if self.service else {}
        up = {part: int(is_now.ok) for part, is_now in status.items()}
        yield family(GaugeMetricFamily, "up", "1 when the part is well, as in /status, else 0.", ("part",), keyed(up))

    def _collect_tables(self) -> Iterator[Metric]:
        events, sizes = self._tables.snapshot()
        labels = ("source", "schema", "table", "action")
        yield family(CounterMetricFamily, "events", "Changes received.", labels, events)
        yield family(
            CounterMetricFamily,
            "event_bytes",
            "Bytes of the column values received.",
            labels,
            sizes,
        )

    def _positions(self, stats: Mapping[str, Stats]) -> Metric:
        values: dict[Labels, float] = {}
        for source, part in _select_kind("source", stats):
            for kind in ("server", "received", "stored", "confirmed"):
                if (lsn := part.get(f"{kind}_lsn")) is not None:
                    values[source, kind] = lsn
        return family(GaugeMetricFamily, "position_lsn", "Positions in the WAL, in bytes.", ("source", "kind"), values)

    def _cursors(self, stats: Mapping[str, Stats]) -> Metric:
        """Keys that are numbers, of the first tables."""
        values: dict[Labels, float] = {}
        for source, part in _select_kind("source", stats):
            for table, key in islice(part.get("cursors", {}).items(), self._most_tables):
                if isinstance(key, int):
                    values[source, table] = key
        return family(
            GaugeMetricFamily, "cursor", "Key of the last row that was read of a table.", ("source", "table"), values
        )

    def _partition_lags(self, stats: Mapping[str, Stats]) -> Metric:
        """Of the first partitions."""
        values: dict[Labels, float] = {}
        for source, part in _select_kind("source", stats):
            for partition, lag in islice(part.get("partitions", {}).items(), self._most_tables):
                topic, _, number = partition.rpartition("[")
                values[source, topic, number.removesuffix("]")] = lag
        labels = ("source", "topic", "partition")
        return family(GaugeMetricFamily, "partition_lag_records", _PARTITION_LAG, labels, values)


_PARTITION_LAG = "Records between a group's place in a partition and the partition's end."

_LAG = "Age of the oldest change that was received and is not durable; 0 when there is none."


@dataclass(frozen=True)
class _ByName:
    """A key of a sink's stats that counts by name, and the label that has the name."""

    key: str
    label: str
    what: str


_BY_NAME = (
    _ByName("skipped", "table", "Changes without a topic that Kafka allows."),
    _ByName("nulled", "column", "Values that the format cannot hold: they, or elements of them, are null."),
)


def _select_kind(kind: str, stats: Mapping[str, Stats]) -> Iterator[tuple[str, Stats]]:
    """The parts of a kind, without `source.`, `handler.` or `sink.`, which the label says already."""
    for part, values in stats.items():
        if part.startswith(f"{kind}."):
            yield part.removeprefix(f"{kind}."), values


def _count_by_name(stats: Mapping[str, Stats], key: str, most: int) -> Mapping[Labels, float]:
    """Counts by sink and name, up to `most` names a sink; a sink that only counts has the empty name."""
    values: dict[Labels, float] = {}
    for sink, part in _select_kind("sink", stats):
        counted = part.get(key, {})
        counts = counted if isinstance(counted, Mapping) else {"": counted}
        for place, (name, count) in enumerate(counts.items()):
            labels = (sink, name if place < most else OTHERS)
            values[labels] = values.get(labels, 0) + count
    return values
