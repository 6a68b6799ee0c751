"""How far the snapshots of a source are: what of it is part of positions, and what is shown."""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psql_streamer.model import Relation
from psql_streamer.snapshot.changed_keys import decode_key, describe_key
from psql_streamer.snapshot.key_check import KeyCheck
from psql_streamer.snapshots import (
    SnapshotProgress,
    SnapshotState,
    TableProgress,
    TableRequest,
    TableState,
    Wanted,
)

_MOST_ENDED_IN_STATUS = 5
"""Snapshots that have ended and are remembered."""

_MOST_TABLES_TOLD = 100
"""Tables of a snapshot that has ended that are remembered one by one."""

_RATE_SECONDS = 10.0

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


@dataclass(slots=True)
class SnapshotRun:
    """A snapshot that was begun, or will be.

    requested: what was asked for; empty for every table. tables: None until its tables have been looked up.
    seconds: that it has taken, without those in which it was not read for. check: of one that looks up keys.
    """

    id: str
    on_demand: bool
    asked_at: float
    requested: tuple[TableRequest, ...] = ()
    tables: list[TableRun] | None = None
    state: SnapshotState = SnapshotState.WAITING
    stale: int = 0
    read_again: int = 0
    seconds: float = 0.0
    reason: str = ""
    check: KeyCheck | None = None
    rates: Rate = field(default_factory=lambda: Rate())

    @property
    def has_keyless_left(self) -> bool:
        """Whether tables without a key are still to be read: they come before the stream."""
        return not self.state.ended and any(table.keyless and table.is_left for table in self.tables or ())

    @property
    def ends_with_its_slot(self) -> bool:
        """Whether another one takes its place when its slot is made anew: it is the source's own, and has not ended."""
        return not self.on_demand and not self.state.ended

    def begin_anew(self) -> SnapshotRun:
        """The same before anything of it was done."""
        check = None if self.check is None else self.check.begin_anew()
        return SnapshotRun(self.id, self.on_demand, self.asked_at, self.requested, check=check)

    def want(self, wanted: Wanted) -> None:
        """What the operator wants of it, unless it has ended."""
        if self.state.ended:
            return
        match wanted:
            case Wanted.CANCEL:
                self.state = SnapshotState.CANCELLED
            case Wanted.PAUSE:
                self.state = SnapshotState.PAUSED
            case Wanted.RUN:
                if self.state is SnapshotState.PAUSED:
                    self.state = SnapshotState.WAITING

    def end_if_done(self) -> bool:
        """Whether it has ended with this, because no table is left."""
        if self.state.ended or self.tables is None or any(table.is_left for table in self.tables):
            return False
        failed = [table for table in self.tables if table.state is TableState.FAILED]
        self.state = SnapshotState.FAILED if failed else SnapshotState.DONE
        if failed and self.check is not None:
            self.reason = failed[0].reason
        elif failed:
            self.reason = (
                f"{len(failed)} of {len(self.tables)} tables were not read; {failed[0].table}: {failed[0].reason}"
            )
        else:
            self.reason = next(
                (f"{table.table}: {table.notes[-1]}" for table in self.tables if table.notes), self.reason
            )
        return True

    def encode(self) -> dict[str, Any]:
        """For the position."""
        tables = self.tables if self.tables is None or not self.state.ended else _select_most_telling(self.tables)
        return {
            "id": self.id,
            "on_demand": self.on_demand,
            "asked_at": self.asked_at,
            "requested": [[one.table, one.where] for one in self.requested],
            "tables": None if tables is None else [table.encode() for table in tables],
            "state": str(self.state),
            "stale": self.stale,
            "read_again": self.read_again,
            "seconds": round(self.seconds, 1),
            "reason": self.reason,
            **({} if self.check is None else {"check": self.check.encode()}),
        }

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> SnapshotRun:
        """What `encode` gave."""
        tables = data["tables"]
        return cls(
            data["id"],
            data["on_demand"],
            data["asked_at"],
            tuple(TableRequest(table, where) for table, where in data["requested"]),
            None if tables is None else [TableRun.decode(table) for table in tables],
            SnapshotState(data["state"]),
            data["stale"],
            data["read_again"],
            data["seconds"],
            data["reason"],
            KeyCheck.decode(data["check"]) if "check" in data else None,
        )

    def show(self, now: float, state: SnapshotState, waits_for: str) -> SnapshotProgress:
        """For people. now: of the clock that Rate was told. state: what it counts as. waits_for: if for anything."""
        tables = self.tables or []
        rate = self.rates.compute_per_second(now) if state is SnapshotState.RUNNING else 0.0
        left = [max(0, (table.estimated_rows or 0) - table.rows) for table in tables if table.is_left]
        known = all(table.estimated_rows is not None for table in tables if table.is_left)
        return SnapshotProgress(
            self.id,
            state,
            [table.show() for table in tables],
            self.on_demand,
            self.asked_at,
            sum(table.rows for table in tables),
            sum(table.chunks for table in tables),
            self.stale,
            self.read_again,
            self.seconds,
            rate,
            sum(left) / rate if rate and known and self.check is None else None,
            waits_for or self.reason,
            None if self.check is None else self.check.show(),
        )


class Rate:
    """Rows a second, of the last seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def note(self, now: float, rows: int) -> None:
        """So many rows were given."""
        self._samples.append((now, rows))
        self._drop_old(now)

    def compute_per_second(self, now: float) -> float:
        """Over the last seconds, or since the first rows if that is less."""
        self._drop_old(now)
        if not self._samples:
            return 0.0
        span = max(now - self._samples[0][0], 1.0)
        return sum(rows for _, rows in self._samples) / span

    def _drop_old(self, now: float) -> None:
        while self._samples and self._samples[0][0] < now - _RATE_SECONDS:
            self._samples.popleft()


def encode_runs(runs: Iterable[SnapshotRun], durably_ended: Container[str]) -> list[dict[str, Any]]:
    """For the position: those that are left, those whose end no stored position has, and the last of the others."""
    held = list(runs)
    ended = [run for run in held if run.state.ended and run.id in durably_ended]
    forgotten = {run.id for run in ended[: max(0, len(ended) - _MOST_ENDED_IN_STATUS)]}
    return [run.encode() for run in held if run.id not in forgotten]


def decode_runs(data: Sequence[Mapping[str, Any]]) -> list[SnapshotRun]:
    """What `encode_runs` gave."""
    return [SnapshotRun.decode(one) for one in data]


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
