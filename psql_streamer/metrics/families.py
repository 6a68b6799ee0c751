"""Prometheus' metric families of what is read at a scrape."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from psql_streamer.metrics.table_counts import Labels

METRIC_PREFIX = "psql_streamer"


def make_family(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    what: str,
    labels: Labels,
    values: Mapping[Labels, float],
) -> Metric:
    """name: without the prefix. values: by the values of the labels."""
    found = kind(f"{METRIC_PREFIX}_{name}", what, labels=labels)
    for key, value in values.items():
        found.add_metric(key, value)
    return found


def key_by_label(values: Mapping[str, float]) -> Mapping[Labels, float]:
    """The values of a family with one label."""
    return {(name,): value for name, value in values.items()}
