"""Snapshots: rows that tables have already, as READ changes beside the stream. What is asked for, and how far it is.

A snapshot is of one source. It reads tables in chunks by key, and gives a chunk when the stream has reached the state
that the chunk was read in; so no READ contradicts a change that was given before it.

One that is of keys reads no rows: it looks up the keys that are posted to it, and gives those that no row has as DELETE
changes, by the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from psql_streamer.shown_commands import show_command


def describe_listing() -> str:
    """What to do about a snapshot of a name that there is not."""
    return f"{show_command('snapshot', 'list')}, or GET /snapshots, lists all of them"


class Wanted(StrEnum):
    """What the operator wants of a snapshot."""

    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"


class SnapshotState(StrEnum):
    """How a snapshot is doing. WAITING: another one of the source goes first. FAILED: it ended without some tables."""

    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether it will read nothing more."""
        return self in (SnapshotState.DONE, SnapshotState.FAILED, SnapshotState.CANCELLED)


class TableState(StrEnum):
    """How a table of a snapshot is doing."""

    WAITING = "waiting"
    READING = "reading"
    DONE = "done"
    FAILED = "failed"


class KeyForm(StrEnum):
    """How keys are written that are looked up. JSON: as the formats event, envelope and flat write them, one object
    with the key's columns by name. DEBEZIUM: as the format debezium does, with or without schema.
    """

    JSON = "json"
    DEBEZIUM = "debezium"


@dataclass(frozen=True, slots=True)
class TableRequest:
    """table: `schema.table`, or a pattern with `*`. where: an SQL condition on its rows; empty for all of them."""

    table: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """What the operator asks of a source.

    id: unique in its source, letters, digits and `-`. tables: empty for all that are streamed. asked_at: seconds since
    1970. keys: for one that looks up keys of its only table, how they are written; None for one that reads rows.
    """

    id: str
    tables: tuple[TableRequest, ...] = ()
    wanted: Wanted = Wanted.RUN
    asked_at: float = 0.0
    keys: KeyForm | None = None


@dataclass(frozen=True, slots=True)
class TableProgress:
    """rows: given so far. estimated_rows: that it has in all, as the server guesses; None where it does not.

    chunks: given so far. last_key: text forms of the key up to which its rows were given, empty before the first.
    reason: of FAILED, or what it waits for; empty when there is nothing to say.
    """

    table: str
    state: TableState
    rows: int = 0
    estimated_rows: int | None = None
    chunks: int = 0
    last_key: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PostedKeys:
    """Keys that are posted to a snapshot. first: the number of the first of them, from 0. documents: JSON of each.

    complete: whether no more will come.
    """

    first: int
    documents: Sequence[bytes]
    complete: bool


@dataclass(frozen=True, slots=True)
class KeysProgress:
    """How far a snapshot of keys is. checked: that are settled. gone: those that no row had, given as DELETE.

    superseded: those that no row had, and that the stream has told of meanwhile. next: the number of the key that is to
    be posted next; less than before when the source had to begin anew behind what is durable. complete: whether it was
    said that no more will come.
    """

    checked: int = 0
    gone: int = 0
    superseded: int = 0
    next: int = 0
    complete: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """How far a snapshot is. on_demand: an operator asked for it; else it is the source's own.

    rows, chunks: given so far. stale: rows that were read and left out, because the stream had newer ones. read_again:
    rows that were read once more, because a change of theirs came without a value. seconds: that it has taken.
    rows_per_second: over the last seconds. seconds_left: an estimate; None where there is none.
    reason: what it waits for, or why it ended; empty when there is nothing to say. keys: of one that looks up keys,
    else None. unlisted: how many tables it has beside `tables`, when it has ended and there were many; unlisted_done:
    those of them that were read.
    """

    id: str
    state: SnapshotState
    tables: Sequence[TableProgress]
    on_demand: bool
    asked_at: float
    rows: int = 0
    chunks: int = 0
    stale: int = 0
    read_again: int = 0
    seconds: float = 0.0
    rows_per_second: float = 0.0
    seconds_left: float | None = None
    reason: str = ""
    keys: KeysProgress | None = None
    unlisted: int = 0
    unlisted_done: int = 0
