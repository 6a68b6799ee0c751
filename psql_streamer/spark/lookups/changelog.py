"""A lookup that the stream itself keeps current: a table of a source."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from psql_streamer.cells import convert_to_cells
from psql_streamer.errors import HandlerError, HandlerRefused, HandlerUnavailable
from psql_streamer.interfaces import Source
from psql_streamer.model import Batch, Changes, Column, Position, Relation, Stats, Truncate
from psql_streamer.spark.lookups.options import LookupOptions
from psql_streamer.spark.lookups.pieces import Moving
from psql_streamer.spark.lookups.reading import make_table_reader, make_typed_table, read_from_source, split_name
from psql_streamer.spark.lookups.row_changes import compute_row_changes
from psql_streamer.spark.lookups.table_state import RowChange, TableState
from psql_streamer.spark.lookups.table_store import Place, TableStore
from psql_streamer.spark.lookups.version import Version

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger("psql_streamer.spark")

_FOLD_CHANGES = 1000
"""Changes that may lie behind the rows on disk before they are folded into them."""


class Changelog:
    """The rows of a table as they are where the stream is.

    `take` is called with every batch before its rules run, `keep` when they have. Both are of the handler's thread;
    `begin_stream` and `note_durable` come from others, `describe` and `stats` from any.
    """

    def __init__(self, name: str, options: LookupOptions) -> None:
        self.name = name
        self.options = options
        self.schema, self.table = split_name(str(options.table))
        self._sources: Mapping[str, Source] = {}
        self._path: Path | None = None
        self._store: TableStore | None = None
        self._relation: Relation | None = None  # as it was last shown; its id is that of the table whose rows are held
        self._shown_id = ""  # of the table that had the name last in the stream
        self._state: TableState | None = None
        self._next: TableState | None = None
        self._is_settled = False
        self._must_read = False
        self._published: Relation | None = None
        self._appended: deque[tuple[Position, Place, int]] = deque()
        self._durable: Position | None = None
        self._lock = threading.Lock()
        self._problem = ""
        self._loads = self._failed = self._changes = 0
        self._rows = self._bytes = 0

    def attach(self, sources: Mapping[str, Source], folder: Path | None) -> None:
        """See Handler.attach."""
        self._sources = sources
        self._path = None if folder is None else folder / f"{self.name}.lmdb"

    def note_published(self, relation: Relation) -> None:
        """What the table looks like now."""
        self._published = relation

    def begin_stream(self, source: str, position: Position | None) -> None:
        """See Handler.begin_stream. What is on disk counts if nothing of the stream came by without it."""
        if source != self.options.source:
            return
        with self._lock:
            store = self._open_store()
            noted = None if store is None else store.read_position()
            goes_on = position is not None and noted is not None and self._sources[source].has_reached(noted, position)
            self._must_read = not goes_on
            if store is not None and self._must_read:
                store.clear()

    def note_durable(self, source: str, position: Position) -> None:
        """See Handler.note_durable."""
        if source == self.options.source:
            with self._lock:
                if self._store is not None:
                    self._store.note_position(position)
                self._durable = position

    @property
    def columns(self) -> tuple[Column, ...] | None:
        """Its columns; None before anything is known of it."""
        if self._state is not None:
            return self._state.columns
        return None if self._published is None else self._published.columns

    def make_table(self, arrays: Sequence[pa.Array] | None) -> tuple[pa.Table, StructType]:
        """Rows with the types that rules see, and their schema. arrays: text forms; None for no rows."""
        from pyspark.sql.pandas.types import from_arrow_schema

        columns = self.columns or ()
        table = make_typed_table(columns, [pa.array([], pa.binary()) for _ in columns] if arrays is None else arrays)
        return table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True)

    def take(self, batch: Batch) -> tuple[Moving, bool]:
        """The table at the begin of a batch and its changes there; and whether it has other columns than before.

        Its changes are on disk on return. HandlerUnavailable while the table cannot be read.
        """
        try:
            return self._take(batch)
        except HandlerError as error:
            self._failed += 1
            self._problem = str(error)
            raise type(error)(f"lookup {self.name}: {error.what}", error.remedy) from None

    def keep(self) -> None:
        """The batch that was taken has gone through."""
        state, self._next = self._next, None
        if state is not None:
            self._state = state
            self._note_size(state)

    def make_version(self, state: TableState) -> Version:
        """All rows of a state."""
        table, schema = self.make_table(state.list_rows())
        return Version(table.num_rows, table.nbytes, schema, time.monotonic(), table)

    def describe(self) -> str:
        """A part of a sentence for /status."""
        if self._problem:
            return f"lookup {self.name} cannot be kept: {self._problem}"
        if self._state is None:
            return f"lookup {self.name} is read with the first changes of source {self.options.source}"
        return f"lookup {self.name} of {self._rows} rows, as the stream has it"

    @property
    def well(self) -> bool:
        """Whether rules can use it."""
        return not self._problem

    def stats(self) -> Stats:
        """rows, bytes, loads, failed_loads, changes."""
        held = {} if self._state is None else {"rows": self._rows, "bytes": self._bytes}
        return {**held, "loads": self._loads, "failed_loads": self._failed, "changes": self._changes}

    def close(self) -> None:
        """Give the file back."""
        with self._lock:
            store, self._store = self._store, None
            if store is not None:
                store.close()
            self._state, self._next, self._is_settled = None, None, False

    def _take(self, batch: Batch) -> tuple[Moving, bool]:
        parts, truncates = self._select_changes(batch)
        columns = None if self._state is None else self._state.columns
        self._be_there(batch, parts)
        state = self._require_state()
        changes = compute_row_changes(
            state,
            [part for part in parts if self._is_held(part.relation)],
            [one for one in truncates if self._is_held(one.relation)],
        )
        if changes:
            self._append(batch, changes)
        self._next = state.with_changes(changes) if changes else state
        if self._next.nbytes > self.options.max_bytes:
            raise HandlerRefused(
                f"the rows of {self.schema}.{self.table} take more than maxBytes, {self.options.max_bytes} bytes",
                "raise maxBytes, or publish fewer columns",
            )
        self._problem = ""
        return Moving(state, changes), columns is not None and columns != state.columns

    def _select_changes(self, batch: Batch) -> tuple[list[Changes], list[Truncate]]:
        if batch.source.name != self.options.source:
            return [], []
        cells = convert_to_cells(batch.changes)
        mine = [(shape.relation.schema, shape.relation.table) == (self.schema, self.table) for shape in cells.shapes]
        parts = list(cells.select_views(np.array(mine, np.bool_))) if any(mine) else []
        return parts, [one for one in batch.truncates if self._is_mine(one.relation)]

    def _is_mine(self, relation: Relation) -> bool:
        return (relation.schema, relation.table) == (self.schema, self.table)

    # Where the rows come from.

    def _be_there(self, batch: Batch, parts: Sequence[Changes]) -> None:
        """The rows at the begin of a batch: those that are held, from the disk, or read anew."""
        ours = batch.source.name == self.options.source
        shape = self._find_newest_shape(batch, parts) if ours else None
        if self._state is None or (ours and not self._is_settled):
            self._load(batch if ours else None)
        if shape is None:
            return
        if self._relation is not None and (other := self._describe_other(self._relation, shape)):
            log.info("lookup %s: %s.%s %s: it is read anew", self.name, self.schema, self.table, other)
            self._read()
        # Not before it is read: a batch that comes again after a reading in vain must find that it has other columns.
        held = "" if self._relation is None else self._relation.id
        self._relation, self._shown_id = replace(shape, id=held or shape.id), shape.id
        if self._state is not None and self._state.columns == shape.columns:
            # The stream knows what types of the database's own stand for.
            self._state = replace(self._state, columns=shape.columns)

    def _describe_other(self, held: Relation, shape: Relation) -> str:
        """Why its rows are not those that are held; empty if they are.

        A table that was read under its name before the stream came to where it got it is known by then: it is read
        again when another one has the name in the stream, not with each change of the one before.
        """
        if held.id and shape.id not in (held.id, self._shown_id):
            return "is another table under its name"
        return "has other columns" if held.columns != shape.columns else ""

    def _is_held(self, relation: Relation) -> bool:
        """Whether a table that has the name in the stream is the one whose rows are held."""
        return self._relation is None or not self._relation.id or relation.id == self._relation.id

    def _find_newest_shape(self, batch: Batch, parts: Sequence[Changes]) -> Relation | None:
        found = [(int(part.batch_order.max()), part.relation) for part in parts]
        found += [
            (change.batch_order, change.relation) for change in batch.schema_changes if self._is_mine(change.relation)
        ]
        return max(found, key=lambda one: one[0])[1] if found else None

    def _load(self, batch: Batch | None) -> None:
        """batch: with which its stream goes on; None: that of another source came first."""
        with self._lock:
            store, must_read = self._open_store(), self._must_read
        held = None if store is None or must_read else store.read_relation()
        if store is None or held is None:
            # What was read before its stream began is not followed by all that has changed since.
            if self._state is None or batch is not None:
                self._read()
            self._is_settled = batch is not None
            self._must_read = self._must_read and not self._is_settled
            return
        begins = None if batch is None else _find_first_place(batch)
        if begins is not None:
            self._tell_of_rewind(store, begins)
            store.settle(begins)
        self._relation = self._with_types(held)
        self._state = store.load(self._relation)
        self._is_settled = begins is not None
        self._note_size(self._state)
        log.info("lookup %s: goes on with %d rows", self.name, self._rows)

    def _with_types(self, relation: Relation) -> Relation:
        """What types of the database's own stand for is not on disk."""
        published = self._published
        if published is None or published.columns != relation.columns:
            return relation
        return replace(published, id=relation.id)

    def _tell_of_rewind(self, store: TableStore, begins: Place) -> None:
        folded = store.read_folded_place()
        if folded is not None and begins <= folded:
            log.warning(
                "lookup %s: the stream goes on before what was known to be for good: until it has come there, rules "
                "see rows of %s.%s that are newer than the changes",
                *(self.name, self.schema, self.table),
            )

    def _read(self) -> None:
        """All rows as they are now. Changes of the stream that are among them already come again, and do no harm."""
        reader = make_table_reader(self.options, self._sources)
        try:
            rows = read_from_source(lambda: reader.read_table(self.schema, self.table, self.options.max_bytes))
        except HandlerRefused as error:  # somebody may grant the privilege meanwhile
            raise HandlerUnavailable(error.what, error.remedy) from None
        if not any(column.key for column in rows.columns):
            raise HandlerRefused(
                f"{self.schema}.{self.table} has no key, so nobody can tell which of its rows a change is of",
                "give it a primary key, or a REPLICA IDENTITY USING INDEX",
            )
        # Changes that are tried may be of another database, where ids are others.
        number = "" if self._path is None else rows.id
        self._relation = Relation(number, self.schema, self.table, rows.columns)
        self._state = TableState.from_arrays(rows.columns, rows.arrays)
        with self._lock:
            if self._store is not None:
                self._store.replace(self._relation, self._state)
                self._appended.clear()
        self._loads += 1
        self._note_size(self._state)
        log.info("lookup %s: %d rows were read", self.name, rows.rows)
        if rows.unstreamed:
            log.warning(
                "lookup %s: source %s does not publish %s of %s.%s, so rows stay as if there were none: set the "
                "publish option of the publication (ALTER PUBLICATION), if there are",
                *(self.name, self.options.source, " and ".join(rows.unstreamed), self.schema, self.table),
            )

    def _open_store(self) -> TableStore | None:
        if self._store is None and self._path is not None:
            self._store = TableStore(self._path, self.options.max_bytes)
        return self._store

    def _require_state(self) -> TableState:
        if self._state is None:
            raise HandlerUnavailable("the table has not been read")
        return self._state

    # What the stream brings.

    def _append(self, batch: Batch, changes: Sequence[RowChange]) -> None:
        self._changes += len(changes)
        places = _find_places(batch, {change.batch_order for change in changes})
        with self._lock:
            store = self._store
            if store is None:
                return
            store.append((places[change.batch_order], change) for change in changes)
            last = places[changes[-1].batch_order]
            self._appended.append((batch.position, Place(last.commit, last.seq + 1), len(changes)))
            self._fold(store)

    def _fold(self, store: TableStore) -> None:
        """Changes before the durable position never come again."""
        durable = self._durable
        if durable is None or sum(count for _, _, count in self._appended) < _FOLD_CHANGES:
            return
        source, end = self._sources[str(self.options.source)], None
        while self._appended and source.has_reached(durable, self._appended[0][0]):
            _, end, _ = self._appended.popleft()
        if end is not None:
            store.fold(end)

    def _note_size(self, state: TableState) -> None:
        self._rows, self._bytes = state.count(), state.nbytes


def _find_first_place(batch: Batch) -> Place | None:
    """Where the first change of a batch stands; None where it has none."""
    places = _find_places(batch, None)
    return places[min(places)] if places else None


def _find_places(batch: Batch, orders: set[int] | None) -> dict[int, Place]:
    """batch_order -> the place of the changes there. orders: those that are wanted; None: the first alone."""
    cells = convert_to_cells(batch.changes)
    commits = batch.transactions.commit
    found = {
        one.batch_order: Place(int(commits[one.tx]), one.seq)
        for one in batch.truncates
        if orders is None or one.batch_order in orders
    }
    wanted = np.arange(min(1, cells.rows))
    if orders is not None:
        wanted = np.flatnonzero(np.isin(cells.batch_order, list(orders)))
    for row in wanted.tolist():
        found[int(cells.batch_order[row])] = Place(int(commits[cells.tx[row]]), int(cells.seq[row]))
    return found
