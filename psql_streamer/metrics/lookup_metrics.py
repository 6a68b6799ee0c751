"""The metrics of lookups, from the stats of the handlers that have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from psql_streamer.metrics.families import make_family
from psql_streamer.metrics.stat_values import is_number, select_named
from psql_streamer.metrics.table_counts import Labels
from psql_streamer.model import Stats

_LABELS = ("handler", "lookup")
_PREFIX = "handler."


@dataclass(frozen=True, slots=True)
class _LookupStat:
    """A key of a lookup's stats, and the metric that shows it."""

    key: str
    family: type[CounterMetricFamily | GaugeMetricFamily]
    what: str


_LOOKUP_STATS = (
    _LookupStat("rows", GaugeMetricFamily, "Rows of the lookup."),
    _LookupStat("bytes", GaugeMetricFamily, "Memory of its rows in the service; 0 if Spark alone holds them."),
    _LookupStat("age_seconds", GaugeMetricFamily, "Time since the lookup was known to be what is there."),
    _LookupStat("loads", CounterMetricFamily, "How often the lookup was read."),
    _LookupStat("failed_loads", CounterMetricFamily, "How often it could not be read."),
    _LookupStat("changes", CounterMetricFamily, "Changes of the stream that were taken into the lookup."),
)

LOOKUP_STAT_NAMES = frozenset(stat.key for stat in _LOOKUP_STATS)
"""What is read of the stats of each lookup."""


def lookup_metrics(stats: Mapping[str, Stats]) -> Iterator[Metric]:
    """By handler and lookup. stats: of all parts, by name."""
    for stat in _LOOKUP_STATS:
        values: dict[Labels, float] = {
            (part.removeprefix(_PREFIX), name): lookup[stat.key]
            for part, of_part in stats.items()
            if part.startswith(_PREFIX)
            for name, lookup in select_named(of_part.get("lookups")).items()
            if isinstance(lookup, Mapping) and is_number(lookup.get(stat.key))
        }
        yield make_family(stat.family, f"lookup_{stat.key}", stat.what, _LABELS, values)
