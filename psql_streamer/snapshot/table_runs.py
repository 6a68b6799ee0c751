"""The tables of a snapshot: how far each is, and which of them are read."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

from psql_streamer.model import Relation
from psql_streamer.snapshot.changed_keys import decode_key, describe_key
from psql_streamer.snapshots import TableProgress, TableState

_MOST_TABLES_TOLD = 100
"""Tables of a snapshot that has ended that are remembered one by one."""

_MOST_NOTES = 3
"""Notes of a table that are remembered: the last ones."""


@dataclass(slots=True)
class TableRun:
    """A table of a snapshot.

    relation: its id; empty for a table that is not read. key: up to which its rows were given. again: keys of rows that
    are to be read once more, each with the turn of the stream (Delivered.turn) that asked for it. order: in which its
    rows are read (ReadRows.order), of which `key` is a place; empty before the first of them were read.
    keyless: whether nothing tells its rows apart: it is read in the snapshot in which a new slot begins, or not at all.
    notes: what consumers lack though it was read, because of what became of it meanwhile. begun_anew: how many times.
    """

    table: str
    relation: str = ""
    where: str = ""
    state: TableState = TableState.WAITING
    rows: int = 0
    chunks: int = 0
    key: bytes | None = None
    again: dict[bytes, int] = field(default_factory=dict)
    estimated_rows: int | None = None
    reason: str = ""
    keyless: bool = False
    order: str = ""
    notes: tuple[str, ...] = ()
    begun_anew: int = 0

    @property
    def is_left(self) -> bool:
        """Whether rows of it are still to be given."""
        return self.state in (TableState.WAITING, TableState.READING)

    def has_key_of(self, relation: Relation) -> bool:
        """Whether the keys by which it is read are those of a relation, as far as is known."""
        return not self.order or json.loads(self.order)[0] == [list(column) for column in describe_key(relation)]

    @property
    def _key_width(self) -> int:
        """How many columns the key has."""
        return len(json.loads(self.order)[0]) if self.order else 0

    def shorten_order(self) -> None:
        """Keep the columns of the key alone: nobody goes on behind it, and every position has it."""
        self.order = json.dumps(json.loads(self.order)[:1]) if self.order else ""

    def begin_anew(self, note: str = "") -> None:
        """Its rows have another order: the key says nothing any more, and neither do the others."""
        self.key, self.order = None, ""
        self.again.clear()
        self.begun_anew += 1
        if note and note not in self.notes:
            self.notes = (*self.notes, note)[-_MOST_NOTES:]

    def fail(self, reason: str) -> None:
        """Nothing more of it is read."""
        self.state, self.reason = TableState.FAILED, reason
        self.again.clear()

    def encode(self) -> dict[str, Any]:
        """For the position."""
        return {
            "table": self.table,
            "relation": self.relation,
            "where": self.where,
            "state": str(self.state),
            "rows": self.rows,
            "chunks": self.chunks,
            "key": None if self.key is None else _encode_key(self.key),
            "again": [_encode_key(key) for key in self.again],
            "estimated_rows": self.estimated_rows,
            "reason": self.reason,
            "keyless": self.keyless,
            "order": self.order,
            **({"notes": list(self.notes)} if self.notes else {}),
            **({"begun_anew": self.begun_anew} if self.begun_anew else {}),
        }

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> TableRun:
        """What `encode` gave."""
        key = data["key"]
        return cls(
            data["table"],
            data["relation"],
            data["where"],
            TableState(data["state"]),
            data["rows"],
            data["chunks"],
            None if key is None else _decode_key(key),
            {_decode_key(one): 0 for one in data["again"]},
            data["estimated_rows"],
            data["reason"],
            data["keyless"],
            data["order"],
            tuple(data.get("notes", ())),
            data.get("begun_anew", 0),
        )

    def show(self) -> TableProgress:
        """For people."""
        return TableProgress(
            self.table,
            self.state,
            self.rows,
            self.estimated_rows,
            self.chunks,
            () if self.key is None or self.keyless else decode_key(self.key, self._key_width),
            self.reason or "; ".join(self.notes),
        )


class Untold(NamedTuple):
    """The tables of a snapshot that has ended of which the position has nothing but this: how many, and what was given
    of them, and how many of them are done."""

    tables: int = 0
    rows: int = 0
    chunks: int = 0
    done: int = 0


class TableRuns(Sequence[TableRun]):
    """The tables of a snapshot, in their order, each with a name of its own.

    Whatever happens to one table costs the same among ten and among ten thousand. So the state of a table is changed
    here alone, and of those that are not read nothing else changes.
    """

    def __init__(self, tables: Iterable[TableRun]) -> None:
        self._every = list(tables)
        self._untold: Untold | None = None
        self._places = {table.table: place for place, table in enumerate(self._every)}
        # Tables without a key come first: the stream waits for them.
        first = sorted(self._every, key=lambda table: not table.keyless)
        self._waiting = {table.table: table for table in first if table.state is TableState.WAITING}
        self._reading = {table.table: table for table in first if table.state is TableState.READING}
        self._encoded = [table.encode() for table in self._every]
        self._told_behind_end: list[dict[str, Any]] | None = None

    def __len__(self) -> int:
        return len(self._every)

    def __iter__(self) -> Iterator[TableRun]:
        return iter(self._every)

    @overload
    def __getitem__(self, place: int) -> TableRun: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[TableRun]: ...

    def __getitem__(self, place: int | slice) -> TableRun | Sequence[TableRun]:
        return self._every[place]

    @property
    def waiting(self) -> Iterable[TableRun]:
        """Those of which nothing was read, in the order in which they are begun. Not while one is begun or ended."""
        return self._waiting.values()

    @property
    def reading(self) -> Sequence[TableRun]:
        """Those of which rows are read."""
        return list(self._reading.values())

    @property
    def has_left(self) -> bool:
        """Whether rows of some are still to be given."""
        return bool(self._waiting or self._reading)

    @property
    def has_keyless_left(self) -> bool:
        """The same of those without a key."""
        return any(table.keyless for table in self._reading.values()) or next(
            (table.keyless for table in self._waiting.values()), False
        )

    def begin(self, table: TableRun) -> None:
        """Rows of it are read."""
        table.state = TableState.READING
        del self._waiting[table.table]
        self._reading[table.table] = table

    def end(self, table: TableRun) -> None:
        """All of it was given."""
        table.state, table.reason = TableState.DONE, ""
        table.shorten_order()
        self._settle(table)

    def fail(self, table: TableRun, reason: str) -> None:
        """Nothing more of it is read."""
        table.fail(reason)
        self._settle(table)

    def encode(self, *, ended: bool) -> Sequence[Mapping[str, Any]]:
        """For the position. ended: whether the snapshot has; then of many tables some are told alone."""
        if ended and self._told_behind_end is not None:
            return self._told_behind_end
        for table in self._reading.values():
            self._encoded[self._places[table.table]] = table.encode()
        if not ended:
            return self._encoded.copy()
        self._told_behind_end = [
            self._encoded[self._places[table.table]] for table in _select_most_telling(self._every)
        ]
        return self._told_behind_end

    def count_untold(self) -> Untold:
        """What `encode` leaves out behind the end."""
        if self._untold is None:
            told = {table.table for table in _select_most_telling(self._every)}
            left_out = [table for table in self._every if table.table not in told]
            rows, chunks = sum(table.rows for table in left_out), sum(table.chunks for table in left_out)
            done = sum(table.state is TableState.DONE for table in left_out)
            self._untold = Untold(len(left_out), rows, chunks, done)
        return self._untold

    def _settle(self, table: TableRun) -> None:
        self._waiting.pop(table.table, None)
        self._reading.pop(table.table, None)
        self._encoded[self._places[table.table]] = table.encode()


def _select_most_telling(tables: Sequence[TableRun]) -> list[TableRun]:
    """The first tables, those that failed, or have notes, before the others."""
    return sorted(tables, key=lambda table: (table.state is not TableState.FAILED, not table.notes))[:_MOST_TABLES_TOLD]


def _encode_key(key: bytes) -> str:
    """As it is where it can stand in JSON, so that people may read it."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(key).decode()
    return "text:" + text


def _decode_key(text: str) -> bytes:
    form, _, rest = text.partition(":")
    return base64.b64decode(rest) if form == "base64" else rest.encode()
