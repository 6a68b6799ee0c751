"""Changes for the tests of the Spark handler, made without a server, and what is to be seen of a result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from psql_streamer.lsn import Lsn
from psql_streamer.model import (
    POSTGRESQL,
    Batch,
    Changes,
    Column,
    Image,
    ReplicaIdentity,
    RowOp,
    SourceInfo,
    Transactions,
)
from psql_streamer.pgoutput.wal_position import WalPosition
from tests.columns import postgres_column, postgres_table

COMMIT_LSN = 0x16_B374D848
INSERT, UPDATE, DELETE = int(RowOp.INSERT), int(RowOp.UPDATE), int(RowOp.DELETE)
NUMERIC_12_2 = ((12 << 16) | 2) + 4

Texts = list[bytes | None]

EVERY: Any = {"*": {"sql": "SELECT * FROM changes"}}
"""[spark.tables] with a rule that leaves every table as it is."""


def column(name: str, oid: int, typmod: int = -1, key: bool = False) -> Column:
    return postgres_column(name, oid, typmod, key)


ORDERS = (
    column("id", 23, key=True),
    column("amount", 1700, NUMERIC_12_2),
    column("customer", 25),
    column("meta", 3802),
)


def image(columns: tuple[Column, ...], rows: dict[int, Texts], absent: dict[int, list[bool]] | None = None) -> Image:
    """rows: row of the changes -> the texts of its columns."""
    arrays = tuple(pa.array([texts[at] for texts in rows.values()], pa.binary()) for at in range(len(columns)))
    masks = {at: np.array(mask) for at, mask in (absent or {}).items()}
    return Image(arrays, np.array(list(rows), np.int64), masks)


def changes(
    ops: list[int],
    after: dict[int, Texts],
    before: dict[int, Texts],
    columns: tuple[Column, ...] = ORDERS,
    absent: dict[int, list[bool]] | None = None,
    table: str = "orders",
    identity: ReplicaIdentity = ReplicaIdentity.FULL,
) -> Changes:
    """absent: of the new images. Under another identity than FULL the old ones hold the key alone, as from the wire."""
    n = len(ops)
    lacking = {at: [True] * len(before) for at, one in enumerate(columns) if not one.key}
    return Changes(
        relation=postgres_table(16384, "public", table, identity, columns),
        columns=columns,
        batch_order=np.arange(n, dtype=np.int64) * 10,
        op=np.array(ops, np.uint8),
        seq=np.arange(n, dtype=np.int64),
        place=np.full(n, 77, np.uint64),
        tx=np.zeros(n, np.int32),
        table_seq=np.arange(n, dtype=np.int64),
        after=image(columns, after, absent),
        before=image(columns, before, lacking if before and identity is not ReplicaIdentity.FULL else None),
    )


def batch(*parts: Changes, **others: Any) -> Batch:
    transactions = Transactions(
        np.array([COMMIT_LSN], np.uint64), np.array([1_700_000_000_000_000], np.int64), pa.array([742], pa.uint32())
    )
    return Batch(
        SourceInfo(POSTGRESQL, "db1", "h", "d"), WalPosition(Lsn(9)).position, transactions, changes=parts, **others
    )


def shop() -> Changes:
    """Insert 1, update 2 (with its old image), delete 3 (with its old image), insert 4."""
    return changes(
        [INSERT, UPDATE, DELETE, INSERT],
        after={
            0: [b"1", b"10.00", b"ann", b'{"a": 1}'],
            1: [b"2", b"20.50", b"bob", b'{"a": 2}'],
            3: [b"4", b"-1.00", b"dan", None],
        },
        before={1: [b"2", b"5.00", b"old bob", b"{}"], 2: [b"3", b"7.00", b"carl", b"[]"]},
    )


def only(result: Batch) -> Changes:
    assert len(result.changes) == 1
    return result.changes[0]


def values(part: Changes, name: str, side: str = "after") -> list[Any]:
    at = names(part).index(name)
    listed: list[Any] = getattr(part, side).columns[at].to_pylist()
    return listed


def names(part: Changes) -> list[str]:
    return [one.name for one in part.columns]


def lacking(part: Changes, side: str = "after") -> dict[str, list[bool]]:
    """Column -> where the images of this side lack it; columns that no image lacks are left out."""
    absent = getattr(part, side).absent
    return {one.name: absent[at].tolist() for at, one in enumerate(part.columns) if at in absent}
