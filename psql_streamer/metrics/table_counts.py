"""Events and bytes of every table since the start, for a number of tables that is bounded."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from threading import Lock

from psql_streamer.model import Batch, Kind, Marker, RowOp
from psql_streamer.name_counts import MOST_PREFIXES, OTHERS, show_name

log = logging.getLogger(__name__)

Labels = tuple[str, ...]

_ACTIONS: Mapping[int, str] = {int(kind): kind.action for kind in (*RowOp, *Marker)}
"""Names by the number of an op or a marker: looked up for every table of every batch."""


class TableCounts:
    """Events and bytes by source, schema, table and action, in plain dicts.

    Prefixes of logical messages have a bound of their own: whoever writes them must not take the tables' series.
    The client's own Counter takes a lock and several objects for every series: too much for 10,000 tables.
    """

    def __init__(self, most_tables: int) -> None:
        self._most_tables = most_tables
        self._own_series: set[tuple[str, str, str]] = set()
        self._most_prefixes = min(most_tables, MOST_PREFIXES)
        self._own_prefixes: set[tuple[str, str]] = set()
        self._lock = Lock()
        self._events: dict[Labels, float] = {}
        self._bytes: dict[Labels, float] = {}

    def add(self, source: str, batch: Batch) -> None:
        counted = list(_count_changes(batch))
        with self._lock:
            for schema, table, op, rows, size in counted:
                names = (
                    self._choose_prefix(source, table)
                    if op is Marker.MESSAGE
                    else self._choose_series(source, schema, table)
                )
                key = (source, *names, _ACTIONS[op])
                self._events[key] = self._events.get(key, 0) + rows
                self._bytes[key] = self._bytes.get(key, 0) + size

    def _choose_series(self, source: str, schema: str, table: str) -> tuple[str, str]:
        own = self._own_series
        if (source, schema, table) in own:
            return schema, table
        if len(own) >= self._most_tables:
            return "", OTHERS
        own.add((source, schema, table))
        if len(own) == self._most_tables:
            log.warning(
                "metrics: %d tables have their own series, further tables are counted together as %s: raise "
                "metricTables if Prometheus can store more",
                *(self._most_tables, OTHERS),
            )
        return schema, table

    def _choose_prefix(self, source: str, prefix: str) -> tuple[str, str]:
        own = self._own_prefixes
        if (source, prefix) not in own:
            if len(own) >= self._most_prefixes:
                return "", OTHERS
            own.add((source, prefix))
        return "", prefix

    def copy_counts(self) -> tuple[Mapping[Labels, float], Mapping[Labels, float]]:
        """Events and bytes so far."""
        with self._lock:
            return self._events.copy(), self._bytes.copy()


def _count_changes(batch: Batch) -> Iterator[tuple[str, str, Kind, int, int]]:
    """(schema, table, op, changes, bytes of all column values, old and new); a message counts its content."""
    for found in batch.rows.count_rows():
        yield found.relation.schema, found.relation.table, *found[1:]
    for truncate in batch.truncates:
        yield truncate.relation.schema, truncate.relation.table, Marker.TRUNCATE, 1, 0
    for message in batch.messages:
        yield "", show_name(message.prefix), Marker.MESSAGE, 1, len(message.content)
