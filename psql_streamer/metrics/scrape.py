"""The metrics that are read from the parts and the pipeline when Prometheus scrapes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import islice

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from psql_streamer.interfaces import Service
from psql_streamer.metrics.families import key_by_label, make_family
from psql_streamer.metrics.lookup_metrics import lookup_metrics
from psql_streamer.metrics.part_stats import PART_STATS
from psql_streamer.metrics.pending import Pending
from psql_streamer.metrics.reserved_stats import LSN_KINDS, NAMED_COUNTS
from psql_streamer.metrics.snapshot_metrics import SnapshotMetrics
from psql_streamer.metrics.stat_values import is_number, select_named, select_numbers
from psql_streamer.metrics.table_counts import Labels, TableCounts
from psql_streamer.model import Stats
from psql_streamer.name_counts import OTHERS


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
        yield self._collect_positions(stats)
        yield self._collect_cursors(stats)
        yield self._collect_partition_lags(stats)
        yield make_family(
            GaugeMetricFamily, "lag_seconds", _LAG, ("source",), key_by_label(self._pending.compute_lags(time.time()))
        )
        for stat in PART_STATS:
            values = {
                name: part[stat.key] for name, part in _select_kind(stat.kind, stats) if is_number(part.get(stat.key))
            }
            yield make_family(stat.family, stat.metric, stat.what, (stat.kind,), key_by_label(values))
        for named in NAMED_COUNTS:
            counted = _count_by_name(stats, named.key, self._most_tables)
            yield make_family(CounterMetricFamily, f"sink_{named.key}", named.what, ("sink", named.label), counted)
        yield from lookup_metrics(stats)
        yield from self._snapshots.collect(self.service.snapshots.list_known() if self.service else {})
        status = self.service.status() if self.service else {}
        up = {part: int(is_now.ok) for part, is_now in status.items()}
        yield make_family(
            GaugeMetricFamily, "up", "1 when the part is well, as in /status, else 0.", ("part",), key_by_label(up)
        )

    def _collect_tables(self) -> Iterator[Metric]:
        events, sizes = self._tables.copy_counts()
        labels = ("source", "schema", "table", "action")
        yield make_family(CounterMetricFamily, "events", "Changes received.", labels, events)
        yield make_family(CounterMetricFamily, "event_bytes", "Bytes of the column values received.", labels, sizes)

    def _collect_positions(self, stats: Mapping[str, Stats]) -> Metric:
        values: dict[Labels, float] = {}
        for source, part in _select_kind("source", stats):
            for kind in LSN_KINDS:
                if is_number(lsn := part.get(f"{kind}_lsn")):
                    values[source, kind] = lsn
        return make_family(
            GaugeMetricFamily, "position_lsn", "Positions in the WAL, in bytes.", ("source", "kind"), values
        )

    def _collect_cursors(self, stats: Mapping[str, Stats]) -> Metric:
        """Keys that are numbers, of the first tables."""
        values: dict[Labels, float] = {}
        for source, part in _select_kind("source", stats):
            for table, key in islice(select_named(part.get("cursors")).items(), self._most_tables):
                if isinstance(key, int) and is_number(key):
                    values[source, table] = key
        return make_family(
            GaugeMetricFamily, "cursor", "Key of the last row that was read of a table.", ("source", "table"), values
        )

    def _collect_partition_lags(self, stats: Mapping[str, Stats]) -> Metric:
        """Of the first partitions."""
        values: dict[Labels, float] = {}
        for source, part in _select_kind("source", stats):
            for partition, lag in islice(select_numbers(part.get("partitions")).items(), self._most_tables):
                topic, _, number = partition.rpartition("[")
                values[source, topic, number.removesuffix("]")] = lag
        labels = ("source", "topic", "partition")
        return make_family(GaugeMetricFamily, "partition_lag_records", _PARTITION_LAG, labels, values)


_PARTITION_LAG = "Records between a group's place in a partition and the partition's end."

_LAG = "Age of the oldest change that was received and is not durable; 0 when there is none."


def _select_kind(kind: str, stats: Mapping[str, Stats]) -> Iterator[tuple[str, Stats]]:
    """The parts of a kind, without `source.`, `handler.` or `sink.`, which the label says already."""
    for part, values in stats.items():
        if part.startswith(f"{kind}."):
            yield part.removeprefix(f"{kind}."), values


def _count_by_name(stats: Mapping[str, Stats], key: str, most: int) -> Mapping[Labels, float]:
    """Counts by sink and name, up to `most` names a sink; a sink that only counts has the empty name."""
    values: dict[Labels, float] = {}
    for sink, part in _select_kind("sink", stats):
        counted = part.get(key)
        for place, (name, count) in enumerate(select_numbers({"": counted} if is_number(counted) else counted).items()):
            labels = (sink, name if place < most else OTHERS)
            values[labels] = values.get(labels, 0) + count
    return values
