"""Rows of a snapshot as a batch of READ changes, and keys that no row has as one of DELETE changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from fastcrc import crc64
from numpy.typing import NDArray

from psql_streamer.cells import CellTable
from psql_streamer.events.identity import format_uuids
from psql_streamer.model import (
    Batch,
    Changes,
    Image,
    Position,
    ReplicaIdentity,
    RowOp,
    SchemaChange,
    SnapshotRows,
    SourceInfo,
    TransactionMetadata,
    Transactions,
    measure_batch_overhead,
)
from psql_streamer.snapshot.held import Piece


def make_snapshot_batch(
    source: SourceInfo,
    position: Position,
    piece: Piece,
    snapshot: SnapshotRows,
    commit: int,
    first_seq: int,
    moment: int,
    schema_changes: Sequence[SchemaChange] = (),
    transaction_metadata: TransactionMetadata | None = None,
    received_at: float = 0.0,
    ids: pa.DataType | None = None,
    begun_anew: int = 0,
) -> Batch:
    """The rows, or keys that are gone, as changes between two transactions of the stream.

    commit: not less than that of every transaction before them, and less than of every one behind. first_seq: of the
    rows, greater than of those before them with the same commit number. moment: when they were read, microseconds since
    1970-01-01 UTC. ids: of what type the source's ids of transactions are; PostgreSQL's if it is not said. begun_anew:
    how many times the snapshot has read the table from its beginning once more.
    """
    made = _make_deletes(piece) if piece.gone else _make_reads(piece)
    uuid = compute_row_uuids(snapshot.id, str(piece.relation), piece.keys, begun_anew)
    changes = CellTable.from_changes([replace(made, seq=made.seq + first_seq, uuid=uuid)])
    return Batch(
        source,
        position,
        Transactions(
            np.array([commit], np.uint64), np.array([moment]), pa.nulls(1, ids or pa.uint32()), snapshots={0: snapshot}
        ),
        changes,
        schema_changes=tuple(schema_changes),
        transaction_metadata=transaction_metadata,
        nbytes=piece.size + measure_batch_overhead(changes),
        received_at=received_at,
    )


def _make_reads(piece: Piece) -> Changes:
    return Changes.from_new_rows(piece.relation, piece.columns, np.zeros(len(piece.keys), np.int32), RowOp.READ)


def _make_deletes(piece: Piece) -> Changes:
    """As the stream has deletes of a table whose old rows are their keys, whatever its replica identity is."""
    count, relation = len(piece.keys), piece.relation
    if relation.old_rows_are_whole:
        relation = replace(relation, replica_identity=ReplicaIdentity.DEFAULT)
    others = [column for column in range(len(relation.columns)) if column not in relation.key_columns]
    rows = np.arange(count)
    empty = Image(tuple(column[:0] for column in piece.columns), rows[:0])
    old = Image(tuple(piece.columns), rows, {column: np.ones(count, np.bool_) for column in others})
    op = np.full(count, RowOp.DELETE, np.uint8)
    return Changes(relation, relation.columns, rows, op, rows, np.zeros(count, np.int32), empty, old)


def compute_row_uuids(snapshot: str, table: str, keys: pa.Array, begun_anew: int = 0) -> NDArray[np.bytes_]:
    """UUIDs of the rows with these keys: the same when they are read again for the same snapshot, but others when it
    has begun the table anew: the rows may have values then that the stream has not.

    They are 122 bits of two CRCs of the key, each mixed with what is the same for all rows of the table.
    """
    where = "\0".join([snapshot, table, *([str(begun_anew)] if begun_anew else [])]).encode()
    values = keys.to_numpy(zero_copy_only=False).tolist()
    words = np.empty((len(values), 2), np.uint64)
    for column, checksum in enumerate((crc64.xz, crc64.go_iso)):
        words[:, column] = np.fromiter(map(checksum, values), np.uint64, len(values))
        words[:, column] ^= np.uint64(checksum(where))
    return format_uuids(words)
