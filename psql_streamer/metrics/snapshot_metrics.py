"""The metrics of snapshots, by source."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from psql_streamer.interfaces import KnownSnapshot
from psql_streamer.metrics.families import key_by_label, make_family
from psql_streamer.snapshot_figures import count_tables_altered, count_tables_left, estimate_rows_left
from psql_streamer.snapshots import KeysProgress, SnapshotProgress

_COUNTERS: Mapping[str, tuple[Callable[[SnapshotProgress], int], str]] = {
    "snapshot_rows": (lambda progress: progress.rows, "Rows that snapshots gave."),
    "snapshot_chunks": (lambda progress: progress.chunks, "Chunks that snapshots gave."),
    "snapshot_stale_rows": (
        lambda progress: progress.stale,
        "Rows that snapshots read and left out, because the stream had newer ones.",
    ),
    "snapshot_read_again": (
        lambda progress: progress.read_again,
        "Rows that snapshots read once more, because a change of theirs came without a value.",
    ),
    "snapshot_tables_altered": (
        count_tables_altered,
        "Tables that were altered while snapshots read them: consumers may lack deletes, or have an old name.",
    ),
}

_COUNTERS_OF_KEYS: Mapping[str, tuple[Callable[[KeysProgress], int], str]] = {
    "snapshot_keys_checked": (lambda keys: keys.checked, "Keys that snapshots looked up."),
    "snapshot_keys_gone": (lambda keys: keys.gone, "Keys that no row had, which snapshots gave as deletes."),
    "snapshot_keys_superseded": (
        lambda keys: keys.superseded,
        "Keys that no row had, and that the stream told of before snapshots could give them.",
    ),
}

_GAUGES: Mapping[str, tuple[Callable[[SnapshotProgress], float | None], str]] = {
    "snapshot_tables_left": (count_tables_left, "Tables that unfinished snapshots have still to read."),
    "snapshot_rows_left": (
        estimate_rows_left,
        "Rows that unfinished snapshots have still to read, as the server guesses.",
    ),
    "snapshot_seconds": (lambda progress: progress.seconds, "Time that unfinished snapshots have taken."),
}


class SnapshotMetrics:
    """Counters never go back, though a source forgets old snapshots, and one that reconnects begins a chunk again."""

    def __init__(self) -> None:
        self._most: dict[str, dict[tuple[str, str], int]] = {name: {} for name in (*_COUNTERS, *_COUNTERS_OF_KEYS)}
        self._lock = threading.Lock()

    def collect(self, known: Mapping[str, Sequence[KnownSnapshot]]) -> Iterator[Metric]:
        """known: by source, for every source that takes snapshots."""
        counters = [(name, count, what) for name, (count, what) in _COUNTERS.items()]
        counters += [(name, _make_keys_counter(count), what) for name, (count, what) in _COUNTERS_OF_KEYS.items()]
        for name, count, what in counters:
            counted = self._count(name, count, known)
            yield make_family(CounterMetricFamily, name, what, ("source",), key_by_label(counted))
        unfinished = [
            (source, [one for one in of_source if not one.progress.state.ended]) for source, of_source in known.items()
        ]
        for name, (measure, what) in _GAUGES.items():
            measured = {source: _sum_known([measure(one.progress) for one in open_]) for source, open_ in unfinished}
            values = {source: value for source, value in measured.items() if value is not None}
            yield make_family(GaugeMetricFamily, name, what, ("source",), key_by_label(values))

    def _count(
        self, name: str, count: Callable[[SnapshotProgress], int], known: Mapping[str, Sequence[KnownSnapshot]]
    ) -> Mapping[str, float]:
        with self._lock:
            most = self._most[name]
            for source, of_source in known.items():
                for one in of_source:
                    key = source, one.progress.id
                    most[key] = max(most.get(key, 0), count(one.progress))
            return {
                source: sum(value for (of_source, _), value in most.items() if of_source == source) for source in known
            }


def _make_keys_counter(count: Callable[[KeysProgress], int]) -> Callable[[SnapshotProgress], int]:
    return lambda progress: 0 if progress.keys is None else count(progress.keys)


def _sum_known(values: Sequence[float | None]) -> float | None:
    """The sum; None where nothing is known of any."""
    known = [value for value in values if value is not None]
    return sum(known) if known or not values else None
