"""Snapshots as text for terminals and logs: lines, tables, bars. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from psql_streamer.errors import StreamerError
from psql_streamer.name_counts import escape_unprintable
from psql_streamer.snapshot_figures import (
    compute_share,
    compute_table_share,
    count_tables,
    count_tables_done,
    count_tables_left,
    describe_keys,
)
from psql_streamer.snapshots import KeysProgress, SnapshotProgress, SnapshotState, TableProgress, TableState

_FIRST = (TableState.READING, TableState.FAILED, TableState.WAITING, TableState.DONE)
_BAR = 20
_LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot as the HTTP API shows it. wanted: `run`, `pause` or `cancel`."""

    source: str
    wanted: str
    progress: SnapshotProgress

    @classmethod
    def from_shown(cls, shown: Mapping[str, Any]) -> Snapshot:
        """StreamerError for what a newer version says."""
        try:
            tables = [
                TableProgress(
                    escape_unprintable(one["table"]),
                    TableState(one["state"]),
                    one["rows"],
                    one["estimated_rows"],
                    one["chunks"],
                    tuple(one["last_key"]),
                    escape_unprintable(one["reason"]),
                )
                for one in shown["tables"]
            ]
            figures = ("rows", "chunks", "stale", "read_again", "seconds", "rows_per_second", "seconds_left")
            progress = SnapshotProgress(
                shown["id"],
                SnapshotState(shown["state"]),
                tables,
                shown["on_demand"],
                datetime.fromisoformat(shown["asked_at"]).timestamp(),
                **{name: shown[name] for name in figures},
                reason=escape_unprintable(shown["reason"]),
                unlisted=shown.get("unlisted", 0),
                unlisted_done=shown.get("unlisted_done", 0),
                keys=None if shown.get("keys") is None else KeysProgress(**shown["keys"]),
            )
            return cls(shown["source"], shown["wanted"], progress)
        except (KeyError, TypeError, ValueError):
            raise _make_version_error() from None


def read_snapshots(answer: Mapping[str, Any]) -> list[Snapshot]:
    """Those that the service lists. StreamerError for what a newer version says."""
    listed = answer.get("snapshots")
    if not isinstance(listed, list):
        raise _make_version_error()
    return [Snapshot.from_shown(one) for one in listed]


def summarize_snapshot(snapshot: Snapshot) -> str:
    """A snapshot in a line."""
    progress = snapshot.progress
    tables = f"{count_tables_done(progress)} of {count_tables(progress)} tables"
    parts = [tables, _describe_rows(progress)]
    if progress.state is SnapshotState.RUNNING:
        parts.append(f"{progress.rows_per_second:,.0f} {'rows' if progress.keys is None else 'keys'}/s")
    if progress.seconds_left is not None and not progress.state.ended:
        parts.append(f"{show_duration(progress.seconds_left)} left")
    if progress.state.ended:
        parts.append(f"in {show_duration(progress.seconds)}")
    reason = f": {progress.reason}" if progress.reason else ""
    return f"{progress.id} {_describe_state(snapshot)}: {', '.join(parts)}{reason}"


def show_bars(snapshot: Snapshot, columns: int, lines: int) -> list[str]:
    """The summary, and a bar for every table; of many tables those that are read, and how many more there are."""
    tables = sorted(snapshot.progress.tables, key=lambda table: _FIRST.index(table.state))
    room = max(1, lines - 3)
    shown = tables if len(tables) <= room else tables[: room - 1]
    width = min(_LONGEST_NAME, max((len(table.table) for table in shown), default=0))
    found = [
        summarize_snapshot(snapshot),
        f"{'':{width}}  {_show_bar(compute_share(snapshot.progress))}",
        *(_describe_table(table, width) for table in shown),
    ]
    if (more := count_tables(snapshot.progress) - len(shown)) > 0:
        left = count_tables_left(snapshot.progress)
        found.append(f"{more} more tables; {left} in all are not finished")
    return [line if len(line) < columns else f"{line[: max(0, columns - 4)]}..." for line in found]


def show_details(snapshot: Snapshot) -> list[str]:
    """The summary, and every table with its bar and its reason."""
    return show_bars(snapshot, columns=10_000, lines=len(snapshot.progress.tables) + 3)


def show_overview(snapshots: Sequence[Snapshot]) -> list[str]:
    """A line for each, in columns."""
    if not snapshots:
        return ["no snapshots"]
    rows = [("ID", "SOURCE", "STATE", "TABLES", "ROWS", "LEFT", "ASKED (UTC)", "")]
    for one in snapshots:
        progress = one.progress
        left = "" if progress.seconds_left is None or progress.state.ended else show_duration(progress.seconds_left)
        tables = f"{count_tables_done(progress)}/{count_tables(progress)}"
        asked = datetime.fromtimestamp(progress.asked_at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        rows.append(
            (progress.id, one.source, _describe_state(one), tables, _show_given(progress), left, asked, progress.reason)
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def show_duration(seconds: float) -> str:
    """`45 s`, `2 min 5 s`, `3 h 20 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _show_given(progress: SnapshotProgress) -> str:
    """For the list: what was given, or how many keys were looked up."""
    return f"{progress.rows:,}" if progress.keys is None else f"{progress.keys.checked:,} keys"


def _describe_state(snapshot: Snapshot) -> str:
    """With what is wanted of it, as long as that is not so."""
    state = snapshot.progress.state
    so = {"pause": SnapshotState.PAUSED, "cancel": SnapshotState.CANCELLED}.get(snapshot.wanted, state)
    return state.value if state is so or state.ended else f"{state.value} ({snapshot.wanted} asked)"


def _describe_rows(progress: SnapshotProgress) -> str:
    if progress.keys is not None:
        return describe_keys(progress.keys)
    estimated = [table.estimated_rows for table in progress.tables]
    if progress.state.ended or not estimated or any(one is None for one in estimated):
        return f"{progress.rows:,} rows"
    return f"{progress.rows:,} of about {sum(one or 0 for one in estimated):,} rows"


def _describe_table(table: TableProgress, width: int) -> str:
    name = table.table if len(table.table) <= width else f"{table.table[: width - 3]}..."
    of = "" if table.estimated_rows is None or table.state is TableState.DONE else f" of about {table.estimated_rows:,}"
    reason = f": {table.reason}" if table.reason else ""
    return (
        f"{name:{width}}  {_show_bar(compute_table_share(table))}  {table.state.value}, {table.rows:,}{of} rows{reason}"
    )


def _show_bar(part: float | None) -> str:
    if part is None:
        return f"[{'?' * _BAR}]    ?"
    filled = int(part * _BAR)
    return f"[{'#' * filled}{'-' * (_BAR - filled)}] {int(part * 100):3d}%"


def _make_version_error() -> StreamerError:
    return StreamerError("the service speaks of snapshots as another version does", "use that version")
