"""A batch of few rows, as decoders give those that are written one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from psql_streamer.cells import Shape
from psql_streamer.few_rows import FewRow, FewRows, FewTransaction
from psql_streamer.model import POSTGRESQL, Batch, Column, Position, Relation, RowOp, SourceInfo, Transactions
from psql_streamer.pgtype import PostgresType

_INT8, _TEXT, _BOOL = PostgresType(20), PostgresType(25), PostgresType(16)


def make_few_rows_batch() -> Batch:
    """Two transactions with an insert, updates with an old row and without, and a delete; of two tables."""
    shapes = [_make_shape("orders"), _make_shape("visits")]
    transactions = [FewTransaction(1, 1_000_000, 7), FewTransaction(2, 2_500_000, 8)]
    each = [
        FewRow(0, 0, RowOp.INSERT, 0, 0, 10, (b"1", b"note \xc3\xa9", b"t"), None),
        FewRow(1, 1, RowOp.INSERT, 1, 0, 11, (b"1", b'a "note"', None), None),
        FewRow(0, 2, RowOp.UPDATE, 0, 1, 12, (b"1", b"another", b"f"), None),
        FewRow(0, 3, RowOp.UPDATE, 1, 1, 13, (b"1", b"a third", b"f"), (b"1", b"another", b"f")),
        FewRow(1, 4, RowOp.DELETE, 2, 1, 14, None, (b"1", b'a "note"', None)),
    ]
    as_arrays = Transactions(
        np.array([one.commit for one in transactions], np.uint64),
        np.array([one.moment for one in transactions]),
        pa.array([one.id for one in transactions], pa.uint32()),
    )
    return Batch(
        SourceInfo(POSTGRESQL, "test", "localhost", "test"),
        Position({"commit": 2}, "2"),
        as_arrays,
        FewRows(shapes, each, transactions, as_arrays),
        nbytes=10_000,
    )


def _make_shape(table: str) -> Shape:
    columns = (Column("id", _INT8, key=True), Column("note", _TEXT), Column("paid", _BOOL))
    return Shape(Relation(table, "public", table, columns), columns)
