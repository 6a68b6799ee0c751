"""A source of one's own, as small as it can be: the rows that are added to a table of a SQLite file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from psql_streamer import model
from psql_streamer.errors import SourceUnavailable
from psql_streamer.interfaces import Finding, Source
from psql_streamer.options import SourceOptions

TYPES = {"INTEGER": pa.int64(), "REAL": pa.float64(), "TEXT": pa.string(), "BLOB": pa.binary()}


class SqliteOptions(SourceOptions):
    path: str
    table: str


class SqliteSource(Source):
    """Asks again and again for rows behind the last one. Each is a transaction, whose commit number is its rowid."""

    Options = SqliteOptions
    _file: sqlite3.Connection | None = None

    def check(self) -> Iterable[Finding]:
        return ()

    def read_stream_identity(self) -> Mapping[str, str]:
        return {"file": self.options.path, "table": self.options.table}

    def has_reached(self, position: model.Position, mark: model.Position) -> bool:
        return bool(position.data["rowid"] >= mark.data["rowid"])

    def start(self, position: model.Position | None) -> None:
        self._rowid = position.data["rowid"] if position else 0
        try:
            self._file = sqlite3.connect(self.options.path, check_same_thread=False)
            described = self._file.execute(f"PRAGMA table_info({self.options.table})").fetchall()
        except sqlite3.Error as error:
            raise SourceUnavailable(f"{self.options.path} cannot be opened: {error}") from error
        columns = (
            model.Column(name, model.ArrowType(TYPES[kind], kind), bool(pk)) for _, name, kind, *_, pk in described
        )
        self._table = model.Relation(self.options.table, "main", self.options.table, tuple(columns))
        self._told = False

    def read(self, timeout: float) -> model.Batch | None:
        query = f"SELECT rowid, * FROM {self.options.table} WHERE rowid > ? ORDER BY rowid LIMIT 1000"
        try:
            rows = self._file.execute(query, (self._rowid,)).fetchall()
        except sqlite3.Error as error:  # it is locked, or went away
            raise SourceUnavailable(f"{self.options.path} cannot be read: {error}") from error
        if not rows:
            time.sleep(timeout)
            return None
        rowids, *values = zip(*rows, strict=True)
        arrays = [pa.array(one, column.type.arrow) for one, column in zip(values, self._table.columns, strict=True)]
        self._rowid, self._told, told = rowids[-1], True, self._told
        batch = model.Batch(
            model.SourceInfo("sqlite", self.name, "localhost", self.options.path),
            model.Position({"rowid": self._rowid}, f"{self._table}.rowid={self._rowid}"),
            model.Transactions(np.array(rowids, np.uint64), np.full(len(rows), time.time_ns() // 1000)),
            (model.Changes.from_new_rows(self._table, arrays, np.arange(len(rows), dtype=np.int32)),),
            schema_changes=() if told else (model.SchemaChange(self._table, None, 0, 0, 0),),
        )
        return replace(batch, nbytes=batch.overhead + sum(one.nbytes for one in arrays))

    def stop(self) -> None:
        self._file = None
