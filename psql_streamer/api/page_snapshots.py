"""Snapshots on the status page: a bar for each, and for the tables that say most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psql_streamer.interfaces import KnownSnapshot
from psql_streamer.redaction import redact
from psql_streamer.snapshot_figures import (
    compute_share,
    compute_table_share,
    count_tables,
    count_tables_done,
    describe_keys,
)
from psql_streamer.snapshots import SnapshotProgress, SnapshotState, TableProgress, TableState

MOST_TABLES = 20
"""How many tables of a snapshot are shown."""

_MOST_ENDED_ON_PAGE = 3
"""How many snapshots of a source are shown after their end."""

_FIRST = (TableState.FAILED, TableState.READING, TableState.WAITING, TableState.DONE)


@dataclass(frozen=True, slots=True)
class Bar:
    """value: from 0 to 1; None while it is not known, for a bar that shows so."""

    name: str
    state: str
    css: str
    value: float | None
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class SnapshotRows:
    """A snapshot, its tables, and how many tables are not shown."""

    whole: Bar
    tables: Sequence[Bar]
    more: int


def show_snapshots(known: Mapping[str, Sequence[KnownSnapshot]]) -> list[SnapshotRows]:
    """Those that have not ended, and the last that have."""
    shown = []
    for of_source in known.values():
        ended = [one for one in of_source if one.progress.state.ended]
        left_out = ended[: max(0, len(ended) - _MOST_ENDED_ON_PAGE)]
        shown += [_make_rows(one) for one in of_source if one not in left_out]
    return shown


def _make_rows(known: KnownSnapshot) -> SnapshotRows:
    progress = known.progress
    tables = sorted(progress.tables, key=lambda table: _FIRST.index(table.state))
    of_rows = f"{progress.rows:,} rows" if progress.keys is None else describe_keys(progress.keys)
    counted = f"{count_tables_done(progress)} of {count_tables(progress)} tables, {of_rows}{_describe_pace(progress)}"
    css = {SnapshotState.FAILED: "problem", SnapshotState.DONE: "ok"}.get(progress.state, "")
    name = f"{known.source}: {progress.id}"
    whole = Bar(name, progress.state.value, css, compute_share(progress), counted, redact(progress.reason))
    return SnapshotRows(
        whole, [_make_table_bar(table) for table in tables[:MOST_TABLES]], max(0, count_tables(progress) - MOST_TABLES)
    )


def _make_table_bar(table: TableProgress) -> Bar:
    of = "" if table.estimated_rows is None else f" of about {table.estimated_rows:,}"
    css = {TableState.FAILED: "problem", TableState.DONE: "ok"}.get(table.state, "")
    rows = f"{table.rows:,}{of} rows"
    return Bar(table.table, table.state.value, css, compute_table_share(table), rows, redact(table.reason))


def _describe_pace(progress: SnapshotProgress) -> str:
    what = "rows" if progress.keys is None else "keys"
    rate = f", {progress.rows_per_second:,.0f} {what}/s" if progress.state is SnapshotState.RUNNING else ""
    return rate + (f", about {progress.seconds_left:,.0f} s left" if progress.seconds_left is not None else "")
