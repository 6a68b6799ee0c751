"""Snapshots as the HTTP API shows them and is asked for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta, Raw, Struct
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from psql_streamer.interfaces import KnownSnapshot
from psql_streamer.redaction import redact
from psql_streamer.snapshots import (
    KeyForm,
    PostedKeys,
    SnapshotState,
    TableProgress,
    TableRequest,
    TableState,
    Wanted,
)
from psql_streamer.table_patterns import TablePatterns, is_pattern

_Name = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"^[^\x00-\x1f\x7f]+$")]
_Condition = Annotated[str, StringConstraints(min_length=1, max_length=100_000, pattern=r"^[^\x00]+$")]


class TableWanted(BaseModel):
    """A table of a request. table: `schema.table` or a pattern. where: an SQL condition on its rows."""

    model_config = ConfigDict(extra="forbid")
    table: _Name
    where: _Condition | None = None


class SnapshotWanted(BaseModel):
    """What POST /snapshots takes.

    source: may be left out if one source alone takes snapshots. tables: names, or tables with a condition; all tables
    if it is left out. where: conditions by table, for tables that are named without one. keys: for a snapshot that
    reads no rows, but looks up keys of its one table, how these are written; they are posted to it.
    """

    model_config = ConfigDict(extra="forbid")
    source: _Name | None = None
    tables: Annotated[list[_Name | TableWanted], Field(min_length=1)] | None = None
    where: dict[_Name, _Condition] = {}
    keys: KeyForm | None = None

    def make_requests(self) -> list[TableRequest]:
        """The tables with their conditions. ValueError, which says why, when they contradict each other."""
        given = [TableWanted(table=one) if isinstance(one, str) else one for one in self.tables or []]
        names = Counter(one.table for one in given)
        if twice := next((name for name, count in names.items() if count > 1), None):
            raise ValueError(f'tables: "{twice}" is named twice')
        TablePatterns(dict.fromkeys(names))
        for one in given:
            if one.where is not None and one.table in self.where:
                raise ValueError(f'where: "{one.table}" has a condition among tables already')
        if unknown := [name for name in self.where if name not in names]:
            raise ValueError(f'where: "{unknown[0]}" is not among tables: name it there')
        if self.keys is not None and (len(given) != 1 or is_pattern(given[0].table) or given[0].where or self.where):
            raise ValueError("keys: name one table, by its name and without a condition")
        return [TableRequest(one.table, one.where or self.where.get(one.table, "")) for one in given]


class KeysPosted(Struct, forbid_unknown_fields=True, rename={"first": "from"}):
    """What POST /snapshots/{id}/keys takes. first: the number of the first of these keys, from 0, and not more than
    `next`. keys: objects. complete: whether these are the last ones.
    """

    first: Annotated[int, Meta(ge=0, le=1 << 53)]
    keys: list[Raw]
    complete: bool = False

    def posted(self) -> PostedKeys:
        """ValueError, which says why, where one is no object."""
        documents = tuple(bytes(key) for key in self.keys)
        for number, document in enumerate(documents, self.first + 1):
            if not document.startswith(b"{"):
                raise ValueError(f"keys: key {number} is no JSON object")
        return PostedKeys(self.first, documents, self.complete)


KEYS_SCHEMA = {
    "title": "KeysPosted",
    "type": "object",
    "properties": {
        "from": {"type": "integer", "minimum": 0, "description": "the number of the first of these keys, from 0"},
        "keys": {"type": "array", "items": {"type": "object"}},
        "complete": {"type": "boolean", "default": False, "description": "whether these are the last ones"},
    },
    "required": ["from", "keys"],
    "additionalProperties": False,
}
"""Of KeysPosted, for OpenAPI."""


class KeysShown(BaseModel):
    """How far a snapshot is that looks up keys. checked: that are settled. gone: those that no row had, given as
    deletes. superseded: those that no row had, and that the stream has told of meanwhile. next: the number of the key
    that is to be posted next; it goes back when the source had to begin anew. complete: whether no more will come.
    """

    checked: int
    gone: int
    superseded: int
    next: int
    complete: bool


class TableShown(BaseModel):
    """How a table is doing. rows, chunks: given so far. last_key: of the last row, as text."""

    table: str
    state: TableState
    rows: int
    estimated_rows: int | None
    chunks: int
    last_key: list[str]
    reason: str


class RequestShown(BaseModel):
    """A table or pattern that was asked for. where: empty for all rows."""

    table: str
    where: str


class SnapshotShown(BaseModel):
    """How a snapshot is doing. on_demand: somebody asked for it; else the source began it by itself.

    wanted: what the operator wants of it, which is followed within a chunk. requested: empty for all tables.
    stale: rows that were left out because the stream had newer ones. read_again: rows that were read once more.
    seconds, seconds_left: that it has taken, and may take. keys: of one that looks up keys; else null.
    unlisted: tables that it has beside those of `tables`, when it has ended; unlisted_done: those that were read.
    """

    id: str
    source: str
    state: SnapshotState
    wanted: Wanted
    on_demand: bool
    asked_at: datetime
    rows: int
    chunks: int
    stale: int
    read_again: int
    seconds: float
    rows_per_second: float
    seconds_left: float | None
    reason: str
    keys: KeysShown | None
    requested: list[RequestShown]
    tables: list[TableShown]
    unlisted: int = 0
    unlisted_done: int = 0

    @classmethod
    def from_known(cls, known: KnownSnapshot) -> SnapshotShown:
        """As it is now."""
        progress = known.progress
        return cls(
            id=progress.id,
            source=known.source,
            state=progress.state,
            wanted=known.wanted,
            on_demand=progress.on_demand,
            asked_at=datetime.fromtimestamp(round(progress.asked_at, 3), UTC),
            rows=progress.rows,
            chunks=progress.chunks,
            stale=progress.stale,
            read_again=progress.read_again,
            seconds=round(progress.seconds, 3),
            rows_per_second=round(progress.rows_per_second, 1),
            seconds_left=None if progress.seconds_left is None else round(progress.seconds_left, 1),
            reason=redact(progress.reason),
            keys=None if progress.keys is None else KeysShown(**asdict(progress.keys)),
            requested=[RequestShown(table=one.table, where=one.where) for one in known.requested],
            tables=[_convert_table(table) for table in progress.tables],
            unlisted=progress.unlisted,
            unlisted_done=progress.unlisted_done,
        )


class SnapshotList(BaseModel):
    """All snapshots that are known, by source, in the order in which they began or will."""

    snapshots: list[SnapshotShown]


def describe_snapshot(shown: SnapshotShown) -> str:
    """A snapshot in a line."""
    rate = f", {shown.rows_per_second:.0f} rows/s" if shown.state is SnapshotState.RUNNING else ""
    left = f", {shown.seconds_left:.0f} s left" if shown.seconds_left is not None else ""
    reason = f": {shown.reason}" if shown.reason else ""
    count = len(shown.tables) + shown.unlisted
    tables = "1 table" if count == 1 else f"{count} tables"
    if (keys := shown.keys) is not None:
        figures = f"{keys.checked} keys looked up, {keys.gone} gone, {keys.superseded} superseded"
        return f"{shown.id} source.{shown.source} {shown.state} {tables} {figures}{reason}"
    return f"{shown.id} source.{shown.source} {shown.state} {tables} {shown.rows} rows{rate}{left}{reason}"


def describe_snapshot_with_tables(shown: SnapshotShown) -> list[str]:
    """A snapshot in a line, and each of its tables in one."""
    return [describe_snapshot(shown), *_describe_tables(shown.tables)]


def _describe_tables(tables: Sequence[TableShown]) -> Iterator[str]:
    for table in tables:
        of = "" if table.estimated_rows is None else f" of about {table.estimated_rows}"
        reason = f": {table.reason}" if table.reason else ""
        yield f"{table.table} {table.state} {table.rows}{of} rows{reason}"


def _convert_table(table: TableProgress) -> TableShown:
    return TableShown(
        table=table.table,
        state=table.state,
        rows=table.rows,
        estimated_rows=table.estimated_rows,
        chunks=table.chunks,
        last_key=list(table.last_key),
        reason=redact(table.reason),
    )
