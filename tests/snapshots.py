"""READ rows of snapshots, as a PostgreSQL source gives them: a chunk is a batch of its own between others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import NAMESPACE_URL, uuid5

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from psql_streamer.lsn import Lsn
from psql_streamer.model import Batch, Changes, Relation, ReplicaIdentity, RowOp, SnapshotRows, Transactions
from psql_streamer.pgoutput.wal_position import WalPosition
from psql_streamer.snapshot.batches import make_snapshot_batch
from psql_streamer.snapshot.held import Piece
from tests.columns import postgres_column, postgres_table
from tests.decoding import SOURCE

INITIAL, ON_DEMAND = SnapshotRows("initial", on_demand=False), SnapshotRows("żółć-2", on_demand=True)
MOMENT = 1_795_260_476_028_123

NOTES = postgres_table(
    16400,
    "public",
    "notes",
    ReplicaIdentity.DEFAULT,
    (postgres_column("id", 20, key=True), postgres_column("note", 25), postgres_column("amount", 1700)),
)

Row = tuple[bytes | None, ...]

ROWS: Sequence[Row] = ((b"1", 'żółć "é"\n'.encode(), b"12.50"), (b"2", None, b"NaN"), (b"30", b"", None))


def uuid_of(snapshot: SnapshotRows, row: object) -> str:
    return str(uuid5(NAMESPACE_URL, f"{snapshot.id} {row!r}"))


def chunk(
    rows: Sequence[Row] = ROWS,
    snapshot: SnapshotRows = INITIAL,
    commit: int = 28_267_135,
    relation: Relation = NOTES,
    moment: int = MOMENT,
    number: int = 0,
) -> Batch:
    """Rows that were read together. commit: one less than the LSN that the stream had reached. number: of the chunk."""
    arrays = [pa.array([row[at] for row in rows], pa.binary()) for at in range(len(relation.columns))]
    changes = Changes.from_new_rows(relation, arrays, np.zeros(len(rows), np.int32), RowOp.READ)
    uuids = [uuid_of(snapshot, (number, at)) for at in range(len(rows))]
    return Batch(
        SOURCE,
        WalPosition(Lsn(commit)).position,
        Transactions(
            np.array([commit], np.uint64),
            np.array([moment], np.int64),
            pa.array([None], pa.uint32()),
            snapshots={0: snapshot},
        ),
        (replace(changes, uuid=np.array(uuids, "S36")),),
        nbytes=100_000,
    )


def gone(
    keys: Sequence[Sequence[bytes]],
    snapshot: SnapshotRows = ON_DEMAND,
    commit: int = 28_267_135,
    relation: Relation = NOTES,
    moment: int = MOMENT,
    seq: int = 0,
) -> Batch:
    """Keys that no row has, as DELETE rows. keys: values of the key's columns."""
    columns: list[pa.Array] = [pa.nulls(len(keys), pa.binary()) for _ in relation.columns]
    for at, column in enumerate(relation.key_columns):
        columns[column] = pa.array([key[at] for key in keys], pa.binary())
    texts = pa.array([b"\0".join(key) for key in keys], pa.binary())
    piece = Piece(relation, columns, texts, 100, None, True, gone=True)
    return make_snapshot_batch(SOURCE, WalPosition(Lsn(commit)).position, piece, snapshot, commit, seq, moment)


@st.composite
def among_chunks(draw: st.DrawFn, batches: Sequence[Batch]) -> list[Batch]:
    """The batches with chunks of their tables between them, of which several may stand at one LSN."""
    relations = {changes.relation for batch in batches for changes in batch.changes if changes.relation.columns}
    known = [NOTES, *sorted(relations, key=str)]
    found: list[Batch] = []
    reached = 0
    for batch in [None, *batches]:
        if batch is not None:
            found.append(batch)
            reached = max(reached, *batch.transactions.commit.tolist(), 0)
        for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
            relation = draw(st.sampled_from(known))
            if relation.key_columns and draw(st.booleans()):
                values = st.text("ż\"'0", min_size=1, max_size=3).map(str.encode)
                key = st.tuples(*[values] * len(relation.key_columns))
                keys = draw(st.lists(key, min_size=1, max_size=4, unique=True))
                found.append(gone(keys, draw(st.sampled_from([INITIAL, ON_DEMAND])), reached, relation))
                continue
            rows = draw(st.lists(_rows(len(relation.columns)), min_size=1, max_size=4))
            found.append(chunk(rows, draw(st.sampled_from([INITIAL, ON_DEMAND])), reached, relation, number=len(found)))
    return found


def _rows(width: int) -> st.SearchStrategy[Row]:
    cells = st.one_of(st.none(), st.sampled_from([b"", b"0", b"t", b"NULL", "żółć".encode(), b"12.5"]))
    few = st.lists(cells, min_size=min(width, 1), max_size=min(width, 4))
    return few.map(lambda held: tuple(held[at % len(held)] for at in range(width)))
