"""What the figures of a snapshot's tables come to: how much is read, and how much is left. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from psql_streamer.snapshots import KeysProgress, SnapshotProgress, SnapshotState, TableProgress, TableState

_OVER = (TableState.DONE, TableState.FAILED)


def describe_keys(keys: KeysProgress) -> str:
    """`1,200 keys looked up, 3 gone, 1 superseded by the stream`."""
    noun = "key" if keys.checked == 1 else "keys"
    return f"{keys.checked:,} {noun} looked up, {keys.gone:,} gone, {keys.superseded:,} superseded by the stream"


def count_tables(progress: SnapshotProgress) -> int:
    """Of how many tables a snapshot is, also of those that it does not list any more."""
    return len(progress.tables) + progress.unlisted


def count_tables_done(progress: SnapshotProgress) -> int:
    """How many of them were read."""
    return progress.unlisted_done + sum(table.state is TableState.DONE for table in progress.tables)


def count_tables_left(progress: SnapshotProgress) -> int:
    """How many tables a snapshot has still to finish; 0 when it has ended."""
    return 0 if progress.state.ended else sum(table.state not in _OVER for table in progress.tables)


def count_tables_altered(progress: SnapshotProgress) -> int:
    """How many tables were read, but have a reason for which consumers may not have all that became of them."""
    return sum(table.state is TableState.DONE and table.reason != "" for table in progress.tables)


def estimate_rows_left(progress: SnapshotProgress) -> int | None:
    """How many rows a snapshot has still to read, as the server guesses; None where it guesses of no table."""
    if progress.state.ended:
        return 0
    if progress.keys is not None:
        return None
    guessed = [table for table in progress.tables if table.estimated_rows is not None]
    left = [max(0, _guess(table) - table.rows) for table in guessed if table.state not in _OVER]
    return sum(left) if guessed else None


def compute_table_share(table: TableProgress) -> float | None:
    """How much of a table has been read, from 0 to 1; None where that is not known."""
    if table.state is TableState.DONE:
        return 1.0
    if table.state is TableState.WAITING and not table.rows:
        return 0.0
    return min(1.0, table.rows / table.estimated_rows) if table.estimated_rows else None


def compute_share(progress: SnapshotProgress) -> float | None:
    """How much of a snapshot has been read, by rows where the server guesses of all tables, else by tables."""
    tables = progress.tables
    if progress.state is SnapshotState.DONE:
        return 1.0
    if not tables or progress.keys is not None:
        return None
    if any(table.estimated_rows is None for table in tables):
        return sum(compute_table_share(table) or 0.0 for table in tables) / len(tables)
    total = sum(max(table.rows, _guess(table)) for table in tables)
    left = estimate_rows_left(progress) or 0
    return 1 - left / total if total else 0.0


def summarize(snapshots: Sequence[SnapshotProgress]) -> list[Mapping[str, Any]]:
    """Those that have not ended, and the last that has: a failure stays to be seen until the next one."""
    last = [one for one in snapshots if one.state.ended][-1:]
    return [_summarize_one(one) for one in [*last, *(one for one in snapshots if not one.state.ended)]]


def show_briefly(summaries: Sequence[Mapping[str, Any]]) -> str:
    """What `summarize` gave, without blanks, for a line of counters: `initial:running:1200`."""
    return ",".join(_show_one_briefly(one) for one in summaries) or "none"


def _show_one_briefly(one: Mapping[str, Any]) -> str:
    """Of one that looks up keys also how many were, and how many are gone."""
    keys = f":{one['keys']['checked']}:{one['keys']['gone']}" if "keys" in one else ""
    return f"{one['id']}:{one['state']}:{one['rows']}{keys}"


def _summarize_one(progress: SnapshotProgress) -> Mapping[str, Any]:
    return {
        "id": progress.id,
        "state": progress.state.value,
        "rows": progress.rows,
        "tables": count_tables(progress),
        "tables_left": count_tables_left(progress),
        "reason": progress.reason,
        **({} if progress.keys is None else {"keys": asdict(progress.keys)}),
    }


def _guess(table: TableProgress) -> int:
    return table.estimated_rows or 0
