"""What the events of a block say, gathered; and the changes that are made of it at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.binlog.cell_bytes import PADDING, Block
from psql_streamer.binlog.rows_events import RowsEvent
from psql_streamer.binlog.shapes import TableShapes
from psql_streamer.binlog.statements import Statement
from psql_streamer.binlog.texts import CellTexts
from psql_streamer.binlog.transaction_metadata import CountedChanges, TransactionCounter
from psql_streamer.binlog.walk import Cells, RowsPart, find_cells, walk
from psql_streamer.cells import NO_CELLS, NO_TUPLES, CellTable, Tuples, expand_ranges
from psql_streamer.model import (
    Index,
    Relation,
    RowOp,
    SchemaChange,
    TableStatement,
    TransactionMetadata,
    Transactions,
    Truncate,
)


class _Begun(NamedTuple):
    """A transaction. durable: how many of its changes are delivered already. thread: as Transactions has it."""

    commit: int
    moment: int
    id: bytes
    durable: int
    thread: int = 0


@dataclass(frozen=True, slots=True)
class Made:
    """open_changes: how many changes the transaction has so far that is open at the end."""

    transactions: Transactions
    changes: CellTable
    truncates: tuple[Truncate, ...]
    schema_changes: tuple[SchemaChange, ...]
    statements: tuple[TableStatement, ...]
    ddl: tuple[Statement, ...]
    metadata: TransactionMetadata | None
    open_changes: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class _Numbered:
    """For each item how many changes it is, the batch order of its first one, and its seq."""

    weight: Index
    batch_order: Index
    seq: Index


class BlockBuilder:
    """Gathers events until `finish`."""

    def __init__(self, shapes: TableShapes, transaction_metadata: bool) -> None:
        self._shapes = shapes
        self._carried = 0
        self._counter = TransactionCounter() if transaction_metadata else None
        self._table_numbers: dict[str, int] = {}
        self._clear([])

    def _clear(self, begun: list[_Begun]) -> None:
        self._begun = begun
        self._tx_of_item: list[int] = []
        self._place_of_item: list[int] = []
        self._part_of_item: list[int] = []
        self._shape_of_part: list[int] = []
        self._op_of_part: list[int] = []
        self._parts: list[RowsPart] = []
        self._data: list[bytes] = []
        self._size = 0
        self._truncated: list[tuple[int, Relation]] = []
        self._shown: list[tuple[int, int, Relation, Relation | None]] = []
        self._statements: list[tuple[int, int, str, Sequence[Relation]]] = []
        self._ddl: list[Statement] = []
        self._ended: dict[int, int] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of rows so far."""
        return self._size

    @property
    def empty(self) -> bool:
        """Whether it has no transaction."""
        return not self._begun

    @property
    def place(self) -> int:
        """How many items there are: rows events and truncates."""
        return len(self._tx_of_item)

    def begin(self, commit: int, moment: int, shown: str, durable: int) -> None:
        """What follows is of this transaction. durable: how many of its changes are to be left out."""
        self._begun.append(_Begun(commit, moment, shown.encode(), durable))

    def note_thread(self, thread: int) -> None:
        """The session that made the last transaction."""
        self._begun[-1] = self._begun[-1]._replace(thread=thread)

    def take_back(self, place: int) -> None:
        """Items of the last transaction, from a place on, were rolled back."""
        parts = [part for part in self._part_of_item[place:] if part >= 0]
        if parts:
            self._size = self._parts[parts[0]][0]
            for of_parts in (self._parts, self._data, self._shape_of_part, self._op_of_part):
                del of_parts[parts[0] :]
        for of_items in (self._tx_of_item, self._place_of_item, self._part_of_item):
            del of_items[place:]
        self._truncated = [one for one in self._truncated if one[0] < place]
        # A table keeps the shape that it has shown, and what was rolled back may have shown it first.
        self._shown = [(min(one[0], place), *one[1:]) for one in self._shown]
        self._statements = [(min(one[0], place), *one[1:]) for one in self._statements]

    def end(self) -> None:
        """The last transaction has ended."""
        self._ended[len(self._begun) - 1] = len(self._tx_of_item)

    def add_rows(self, rows: RowsEvent, place: int) -> None:
        """The images of a rows event. place: where it lies."""
        self._add_item(place, len(self._parts))
        self._shape_of_part.append(rows.table.number)
        self._op_of_part.append(rows.op)
        size = self._size
        self._size = size + len(rows.images)
        self._parts.append((size, self._size, rows.layouts, rows.table.name))
        self._data.append(rows.images)

    def _add_item(self, place: int, part: int) -> None:
        """Changes that one event has. part: which of the parts; -1 for a truncate."""
        self._tx_of_item.append(len(self._begun) - 1)
        self._place_of_item.append(place)
        self._part_of_item.append(part)

    def add_truncate(self, relation: Relation, place: int) -> None:
        """A TRUNCATE TABLE."""
        self._truncated.append((len(self._tx_of_item), relation))
        self._add_item(place, -1)

    def add_schema_change(self, relation: Relation, before: Relation | None) -> None:
        """The next change is the first in this shape."""
        self._shown.append((len(self._tx_of_item), len(self._begun) - 1, relation, before))

    def add_ddl(self, statement: Statement) -> None:
        """A statement that may change tables."""
        self._ddl.append(statement)
        relations = self._shapes.find_named_tables(statement)
        self._statements.append((len(self._tx_of_item), len(self._begun) - 1, statement.shown, relations))

    def finish(self, is_open: bool) -> Made:
        """The changes, in the order in which they came. is_open: whether the last transaction goes on.

        Statements behind the last change of a transaction that goes on wait for what comes: positions count changes,
        so a restart at this one would tell of them again.
        """
        begun = self._begun
        waiting = self._take_last_statements() if is_open else []
        threads = np.array([one.thread for one in begun], np.int64)
        transactions = Transactions(
            np.array([one.commit for one in begun], np.uint64),
            np.array([one.moment for one in begun], np.int64),
            pa.array([one.id for one in begun], pa.binary()),
            threads=threads if threads.any() else None,
        )
        block = Block(b"".join((*self._data, PADDING)))
        self._data.clear()  # they may be large, and are in the block
        walked = walk(block, self._parts)
        tx, part = np.array(self._tx_of_item, np.int64), np.array(self._part_of_item, np.int64)
        both = np.array(self._op_of_part, np.uint8) == RowOp.UPDATE
        rows = walked.images >> both
        weight = np.ones(len(part), np.int64)
        weight[part >= 0] = rows
        numbered, ends = self._number(tx, weight)
        metadata, table_seq = self._count(tx, numbered, is_open)
        table = NO_CELLS
        if len(walked.at):
            cells = find_cells(block.u8, walked, self._look_up_layouts(walked.images), self._shapes.layouts.arrays)
            texts = CellTexts(block, cells, self._shapes.layouts.cell_types)
            del block
            table = self._build_table(cells, texts, walked.images, rows, tx, part, numbered, table_seq)
        made = Made(
            transactions,
            self._select_undelivered(table),
            tuple(self._make_truncates(numbered, table_seq)),
            tuple(self._make_schema_changes(numbered, ends)),
            tuple(self._make_table_statements(numbered, ends)),
            tuple(self._ddl),
            metadata,
            int(ends[-1]) if is_open and begun else 0,
            self._size,
        )
        self._carried = made.open_changes
        self._clear(begun[-1:] if is_open else [])
        self._statements = [(0, 0, text, relations) for text, relations in waiting]
        return made

    def _take_last_statements(self) -> list[tuple[str, Sequence[Relation]]]:
        """Of the last transaction, those behind its last change."""
        place = len(self._tx_of_item), len(self._begun) - 1
        taken = [(text, relations) for *at, text, relations in self._statements if tuple(at) == place]
        self._statements = self._statements[: len(self._statements) - len(taken)]
        return taken

    def _number(self, tx: Index, weight: Index) -> tuple[_Numbered, Index]:
        """And for each transaction how many changes it has so far."""
        end = np.cumsum(weight)
        batch_order = end - weight
        last = np.searchsorted(tx, np.arange(len(self._begun)), side="right")
        ends = np.append(0, end)[last]
        base = np.append(0, ends)[: len(ends)]
        if len(base):
            base[0] -= self._carried
        return _Numbered(weight, batch_order, batch_order - base[tx]), ends - base

    def _count(self, tx: Index, numbered: _Numbered, is_open: bool) -> tuple[TransactionMetadata | None, Index | None]:
        """What the piece says of transactions, and the table_seq of the first change of each item."""
        if self._counter is None:
            return None, None
        truncated = dict(self._truncated)
        relations = [
            truncated[item] if part < 0 else self._shapes.shapes[self._shape_of_part[part]].relation
            for item, part in enumerate(self._part_of_item)
        ]
        numbers = self._table_numbers
        table = np.array([numbers.setdefault(one.id, len(numbers)) for one in relations], np.int64)
        behind = np.append(numbered.batch_order, numbered.weight.sum())
        return self._counter.count(
            CountedChanges(tx, table, numbered.weight, numbered.batch_order, relations),
            {ended: int(behind[item]) for ended, item in self._ended.items()},
            [not one.durable and (number > 0 or not self._carried) for number, one in enumerate(self._begun)],
            len(self._begun) - 1 if is_open else None,
        )

    def _look_up_layouts(self, images: Index) -> Index:
        """The number of the layout of each image."""
        first = np.array([layouts[0].number for _, _, layouts, _ in self._parts], np.int64)
        last = np.array([layouts[-1].number for _, _, layouts, _ in self._parts], np.int64)
        odd = _place_in_part(images) & 1
        return np.where(odd, np.repeat(last, images), np.repeat(first, images))

    def _build_table(
        self,
        cells: Cells,
        texts: CellTexts,
        images: Index,
        rows: Index,
        tx: Index,
        part: Index,
        numbered: _Numbered,
        table_seq: Index | None,
    ) -> CellTable:
        items = np.flatnonzero(part >= 0)
        bounds = np.append(0, np.cumsum(rows))
        op, shape = np.array(self._op_of_part, np.uint8), np.array(self._shape_of_part, np.int32)
        place = np.array(self._place_of_item, np.uint64)[items]
        both = op == RowOp.UPDATE
        in_part = _place_in_part(images)
        row = np.repeat(bounds[:-1], images) + (in_part >> np.repeat(both, images))
        old = np.repeat(op == RowOp.DELETE, images) | np.repeat(both, images) & (in_part & 1 == 0)
        return CellTable(
            self._shapes.shapes,
            np.repeat(shape, rows),
            expand_ranges(numbered.batch_order[items], bounds),
            np.repeat(op, rows),
            expand_ranges(numbered.seq[items], bounds),
            np.repeat(tx[items].astype(np.int32), rows),
            _select_tuples(cells, texts, np.flatnonzero(~old), row),
            _select_tuples(cells, texts, np.flatnonzero(old), row),
            np.repeat(place, rows),
            None if table_seq is None else expand_ranges(table_seq[items], bounds),
        )

    def _select_undelivered(self, table: CellTable) -> CellTable:
        """The rows that are not delivered already."""
        if not table.rows or not any(one.durable for one in self._begun):
            return table
        durable = np.array([one.durable for one in self._begun], np.int64)
        return table.take(np.flatnonzero(table.seq >= durable[table.tx]))

    def _make_truncates(self, numbered: _Numbered, table_seq: Index | None) -> list[Truncate]:
        found = []
        for item, relation in self._truncated:
            tx, place = self._tx_of_item[item], self._place_of_item[item]
            seq = int(numbered.seq[item])
            if seq >= self._begun[tx].durable:
                of_table = 0 if table_seq is None else int(table_seq[item])
                order = int(numbered.batch_order[item])
                found.append(Truncate(relation, order, seq, place, tx, False, True, of_table))
        return found

    def _make_schema_changes(self, numbered: _Numbered, ends: Index) -> list[SchemaChange]:
        found = []
        for item, tx, relation, before in self._shown:
            order, seq = self._locate_next_change(item, tx, numbered, ends)
            if seq >= self._begun[tx].durable:
                found.append(SchemaChange(relation, before, order, seq, tx))
        return found

    def _make_table_statements(self, numbered: _Numbered, ends: Index) -> list[TableStatement]:
        found = []
        for item, tx, text, relations in self._statements:
            order, seq = self._locate_next_change(item, tx, numbered, ends)
            if seq >= self._begun[tx].durable:
                found += [TableStatement(relation, text, order, seq, tx) for relation in relations]
        return found

    def _locate_next_change(self, item: int, tx: int, numbered: _Numbered, ends: Index) -> tuple[int, int]:
        """Batch order and seq of the change behind some place of a transaction."""
        if item < len(self._tx_of_item):
            order = int(numbered.batch_order[item])
            return order, int(numbered.seq[item]) if self._tx_of_item[item] == tx else int(ends[tx])
        return int(numbered.weight.sum()), int(ends[tx])


def _place_in_part(images: Index) -> Index:
    """Which image of its part each is."""
    bounds = np.append(0, np.cumsum(images))
    return expand_ranges(np.zeros(len(images), np.int64), bounds)


def _select_tuples(cells: Cells, texts: CellTexts, images: Index, row: Index) -> Tuples:
    """Some of the images. row: of each image which row it is of."""
    if not len(images):
        return NO_TUPLES
    widths = np.diff(cells.begins)[images]
    begins = np.append(0, np.cumsum(widths))
    which = expand_ranges(cells.begins[:-1][images], begins)
    absent: NDArray[np.bool_] | None = None if cells.absent is None else cells.absent[which]
    return Tuples(row[images], begins, texts.take(which), absent if absent is not None and absent.any() else None)
